"""One process of ArmTrainer under DDP on a CPU: `python trl_rank.py FOLDER`, with RANK, WORLD_SIZE and the like set.

Trains each of `CASES` on responses that depend on the prompt and the row alone, and writes what every process did:
`CASE-WORLDSIZE-RANK.pt` with the rows drawn in each batch, the gradients of all optimiser steps and the ledger.
"""

import os
import sys
import zlib
from pathlib import Path

import torch
from test_trl import ROLLOUTS, TOKENIZER, UPDATES, even, trainer_on_trl
from test_trl_loss import Seen, reference
from test_trl_plans import Curious

ACCUMULATE = 2
# (arm, parts of ArmTrainer, changes of GRPOConfig)
CASES = {
    "zvf-cost-aware": ("zvf-cost-aware", {"objective": None, "refill_rounds": 3}, {}),
    "kl": ("cost-aware", {"objective": None}, {"beta": 0.1, "loss_type": "grpo"}),
    "arm": ("d3s", {"objective": "arm"}, {"beta": 0.1}),
    "plan": ("pods", {"objective": None, "plan": Curious}, {"num_iterations": 2}),
}


def as_prompted(trainer):
    """TRL's generation replaced by responses of 1 to 7 tokens, which the batch, its row and the prompt decide."""
    calls = iter(range(10**6))

    def _generate(prompts):
        call, first = next(calls), trainer.accelerator.process_index * len(prompts)
        ids_N = trainer._tokenizer(list(prompts))["input_ids"]
        rows = []
        for row, prompt in enumerate(prompts, first):
            generator = torch.Generator().manual_seed(zlib.crc32(f"{call} {row} {prompt}".encode()))
            length = int(torch.randint(1, 8, (1,), generator=generator))
            rows.append([*torch.randint(4, 14, (length,), generator=generator).tolist(), TOKENIZER.eos_token_id])
        return ids_N, rows, None, TOKENIZER.batch_decode(rows), None, {}, None, []

    trainer._generate = _generate


def main(folder: Path) -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for case, (arm, parts, changes) in CASES.items():
        share = {"per_device_train_batch_size": ROLLOUTS // UPDATES // ACCUMULATE // world}
        if "beta" in changes:
            import trl.trainer.grpo_trainer as theirs

            theirs.create_model_from_path = lambda *_, **__: reference()
        trainer = trainer_on_trl(folder / case, arm, reward=even, changes={**share, **changes}, **parts)
        as_prompted(trainer)
        drawn, select = [], trainer._select

        def watch(batch, select=select, drawn=drawn):
            drawn.append(None if (chosen := select(batch)) is None else chosen.row_N.tolist())
            return chosen

        trainer._select = watch
        trainer.add_callback(seen := Seen())
        trainer.train()
        done = {"drawn": drawn, "gradients": seen.gradients, "ledger": trainer.ledger.row()}
        torch.save(done, folder / f"{case}-{world}-{rank}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
