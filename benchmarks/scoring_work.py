"""What both trainers of benchmarks.scoring get: SmolLM2-135M, a policy that has moved away from it, and one batch."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from repro.engine.backends.load import END, SMOLLM2, fetch
from repro.files import write_json
from repro.paths import BUILD

ARMS = ("d3s", "zvf-cost-aware")
GROUPS, GROUP, SILENT = 4, 8, 1  # groups of rollouts, and those of them whose rewards are equal
UPDATES, KL, SEED, LONGEST = 2, 1e-3, 0, 64
MOVED = 1e-3  # standard deviation of what is added to the policy's weights, for a KL term above zero
FILE = BUILD / "bench" / "smollm2-batch.json"


@dataclass(frozen=True)
class Work:
    """prompts_N and responses_N: token ids; group_N; verdicts_N."""

    prompts_N: list[list[int]]
    responses_N: list[list[int]]
    group_N: np.ndarray
    verdicts_N: np.ndarray


def work() -> Work:
    """The batch that `make_work` has sampled."""
    read = json.loads(FILE.read_text())
    return Work(**{**read, **{name: np.array(read[name]) for name in ("group_N", "verdicts_N")}})


def make_work() -> None:
    """SmolLM2's own responses to sums, cut at 64 tokens. Verdicts are given, three right ones in each group but the
    silent: at this size the model solves too few for a batch with a signal."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    rng, tokenizer = np.random.default_rng(SEED), AutoTokenizer.from_pretrained(fetch(SMOLLM2))
    model = AutoModelForCausalLM.from_pretrained(fetch(SMOLLM2))
    stop = tokenizer.convert_tokens_to_ids(END)
    torch.manual_seed(SEED)
    prompts_N, responses_N = [], []
    for terms in range(2, 2 + GROUPS):
        asked = f"What is {' + '.join(map(str, rng.integers(1, 20, terms)))}?"
        chat = [{"role": "user", "content": asked}]
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        made = model.generate(
            torch.tensor([ids] * GROUP), do_sample=True, temperature=1.0, top_k=0, max_new_tokens=LONGEST
        )
        for response in made[:, len(ids) :].tolist():
            responses_N.append(response[: response.index(stop) + 1] if stop in response else response)
            prompts_N.append(ids)
    verdicts_Q_G = (rng.permuted(np.tile(np.arange(GROUP), (GROUPS, 1)), axis=1) < 3).astype(float)
    verdicts_Q_G[:SILENT] = 0.0
    made = {"prompts_N": prompts_N, "responses_N": responses_N, "verdicts_N": verdicts_Q_G.reshape(-1).tolist()}
    write_json({**made, "group_N": np.repeat(np.arange(GROUPS), GROUP).tolist()}, FILE)


def policy_folder() -> Path:
    """SmolLM2 with a little noise on its weights, made once."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from repro.policy.model import save_policy

    folder = BUILD / "bench" / "smollm2-moved"
    if not (folder / "config.json").exists():
        model = AutoModelForCausalLM.from_pretrained(fetch(SMOLLM2))
        torch.manual_seed(SEED)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(MOVED * torch.randn_like(weight))
        save_policy(model, AutoTokenizer.from_pretrained(fetch(SMOLLM2)), folder)
    return folder


def flat(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.flatten() for part in parts])
