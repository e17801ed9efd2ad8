"""TRL's GRPOTrainer as a competitor, one batch per request: `python -m benchmarks.trl_worker POLICY BATCHES`.

With the settings that were fastest here. Defaults among them: the fused AdamW and the dynamic cache (the static one
took 15% longer); one slice per mini-batch of 64 (2 × 32: 5% longer, 4 × 16: 20% longer). It computes the old
log-probabilities in a separate pass, which it needs for four optimiser steps per batch of rollouts.
"""

import sys

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.worker import Requests
from benchmarks.workload import GROUP, RACE, UPDATES, race_queries, section
from repro.paths import BUILD
from repro.policy.model import load_policy
from repro.tasks.queries import verify


def compete(policy: str, batches: int) -> None:
    """Train; every batch waits for its request."""
    model, tokenizer = load_policy(policy)
    engine, queries = section("engine", **RACE["engine"]), race_queries()
    requests, generated = Requests(), []

    def reward(completions, completion_ids, index, **rest):
        generated.append(sum(map(len, completion_ids)))
        finished = [ids[-1] == tokenizer.eos_token_id for ids in completion_ids]
        rows = zip(completions, finished, index, strict=True)
        return [verify(text, queries[i]) if done else 0.0 for text, done, i in rows]

    class BatchByBatch(TrainerCallback):
        def on_train_begin(self, arguments, state, control, **rest):
            requests.next()

        def on_step_end(self, arguments, state, control, **rest):
            if state.global_step % UPDATES == 0:
                requests.answer(generated_tokens=sum(generated), updates=UPDATES)
                generated.clear()
                requests.next()

    config = GRPOConfig(
        output_dir=str(BUILD / "bench" / "trl"),
        max_steps=UPDATES * batches,
        per_device_train_batch_size=engine.minibatch,
        gradient_accumulation_steps=1,
        steps_per_generation=UPDATES,
        num_generations=GROUP,
        max_completion_length=engine.max_new_tokens,
        temperature=engine.temperature,
        learning_rate=engine.learning_rate,
        lr_scheduler_type="constant",
        weight_decay=engine.weight_decay,
        adam_beta2=0.95,
        max_grad_norm=engine.gradient_clip,
        beta=0.0,
        loss_type="grpo",
        epsilon=0.2,
        epsilon_high=0.28,
        shuffle_dataset=False,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    rows = [{"prompt": query.prompt, "index": index} for index, query in enumerate(queries)]
    GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[BatchByBatch()],
    ).train()


if __name__ == "__main__":
    torch.set_num_threads(1)
    compete(sys.argv[1], int(sys.argv[2]))
