"""`python -m repro.report.picture`: the picture at the top of README.md, one group of real responses being chosen from.

The base policy shipped with the project answers training queries, eight times each; the picture shows the group with
the most different lengths, as cost-aware sampling draws from it.
"""

import numpy as np
import pandas as pd

from repro import settings as settings_module
from repro.files import write_text
from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.picture import batch_svg
from repro.methods.rollouts import Rollouts
from repro.methods.samplers.cost_aware import cost_aware, probabilities
from repro.paths import ROOT
from repro.policy.model import SHIPPED

PICTURE = ROOT / "docs" / "images" / "one_batch.svg"
GROUP = 8
QUERIES = 48  # answered, to choose a telling group from
SEED = 0


def policy_hash() -> str:
    """Which weights made the picture, so that a test sees when they are no longer the shipped ones."""
    from repro.protocol.profile import hash_policy

    return hash_policy(SHIPPED)[:16]


def groups() -> list[tuple[str, list[str], np.ndarray, int, np.ndarray]]:
    """For each of some training queries: prompt, responses, rewards_G, prompt tokens, response_tokens_G."""
    import torch

    from repro.engine.sample import sample
    from repro.policy.model import load_policy
    from repro.tasks.queries import make_pools

    torch.set_num_threads(1)
    settings = settings_module.load(scale="tutorial")
    model, tokenizer = load_policy(SHIPPED)
    queries = make_pools(settings.task, pretraining=False).train
    options = {"samples": GROUP, "batch_rollouts": GROUP, "max_new_tokens": settings.engine.max_new_tokens}
    made = []
    for query in [query for query in queries if query.family in ("sum-3", "sum-4")][:QUERIES]:
        [chunk] = sample(model, tokenizer, [query], **options, temperature=1.0, seed=SEED)
        prompt_tokens = len(tokenizer(query.prompt)["input_ids"])
        made.append((query.prompt, chunk.texts, np.asarray(chunk.verdicts_N, float), prompt_tokens, chunk.tokens_N))
    return made


def drawn_group() -> tuple[str, pd.DataFrame]:
    """The prompt, and a row for each response: reward, advantage, cost, probability, how often cost-aware drew it."""
    few = [group for group in groups() if group[2].sum() in (2, 3)]  # right answers: |A| then differs
    prompt, texts, rewards_G, prompt_tokens, tokens_G = max(few, key=lambda group: len(np.unique(group[4])))
    batch = Rollouts.from_batch(
        group_N=np.zeros(GROUP, int),
        rewards_N=rewards_G,
        advantages_N=group_normalised(rewards_G, np.zeros(GROUP, int)),
        prompt_tokens_N=np.full(GROUP, prompt_tokens),
        response_tokens_N=tokens_G,
    )
    drawn = cost_aware(batch, 0.0, np.random.default_rng(SEED))
    rows = {
        "response": texts,
        "reward": rewards_G.astype(int),
        "advantage": batch.advantages_N.round(4),
        "cost": batch.costs_N,
        "p": probabilities(batch).round(4),
        "drawn": np.bincount(drawn.row_N, minlength=GROUP),
    }
    return prompt, pd.DataFrame(rows)


def main() -> None:
    """Write the picture."""
    prompt, group = drawn_group()
    title = f"Eight responses to {prompt} and how cost-aware sampling draws from them"
    write_text(batch_svg(group, title, source=policy_hash()), PICTURE)
    print(group.to_string(), f"\n{PICTURE}")


if __name__ == "__main__":
    main()
