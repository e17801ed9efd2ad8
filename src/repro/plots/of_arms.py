"""What arms make of one batch: four groups of four responses, in two of which rewards differ.

It shows filters, advantages and samplers, and neither plans and memories, which choose what is asked, nor objectives.
"""

import numpy as np
import pandas as pd

from repro.arms import build
from repro.methods.lengths import Lengths
from repro.methods.picture import batch_svg
from repro.methods.rollouts import Rollouts
from repro.settings import Arm

GROUP_N = np.repeat(np.arange(4), 4)
REWARD_N = np.array([1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0], float)
TOKENS_N = np.array([9, 24, 14, 30, 8, 26, 12, 18, 10, 22, 15, 28, 11, 20, 16, 32])
PROMPT = 6


def on_one_batch(arm: Arm) -> pd.DataFrame:
    """A row per rollout of the batch: `response` (its group and number), `reward`, `advantage`, `cost` in tokens, and
    how often the arm has `drawn` it, once for all as a seed of 0 does. SettingsError if the arm cannot be built."""
    method, rng = build(arm.title, arm), np.random.default_rng(0)
    lengths = Lengths(TOKENS_N, TOKENS_N.max() == TOKENS_N, int(TOKENS_N.max()))
    rewards_N, kept = method.rewards(0, REWARD_N, rng, lengths), np.arange(len(GROUP_N))
    if method.filter is not None:
        kept = kept[method.kept_groups(0, rewards_N, GROUP_N)[GROUP_N]]
    advantages_N, drawn_N = np.zeros(len(GROUP_N)), np.zeros(len(GROUP_N), int)
    if len(kept):
        advantages_N[kept] = method.advantages(0, rewards_N[kept], GROUP_N[kept], lengths.take(kept))
        chosen = method.select(0, _rollouts(rewards_N, advantages_N).take(kept), 0.0, rng)
        drawn_N = drawn_N if chosen is None else np.bincount(chosen.row_N, minlength=len(GROUP_N))
    names = [f"group {group}, no. {number}" for group, number in zip(GROUP_N + 1, np.tile(range(1, 5), 4), strict=True)]
    columns = {"reward": rewards_N, "advantage": advantages_N, "cost": PROMPT + TOKENS_N, "drawn": drawn_N}
    return pd.DataFrame({"response": names, **columns})


def picture(arm: Arm) -> str:
    """The SVG of `on_one_batch`, as README's picture."""
    apart = ", its plan apart" if arm.plan[0] != "uniform" else ", its memory apart" if arm.memory else ""
    return batch_svg(on_one_batch(arm), f"What {arm.title} draws from one batch{apart}")


def _rollouts(rewards_N: np.ndarray, advantages_N: np.ndarray) -> Rollouts:
    """The batch, with entropies and log-probabilities such as a small policy has."""
    mask_N_T, rng = np.arange(TOKENS_N.max()) < TOKENS_N[:, None], np.random.default_rng(1)
    entropy_N_T, logprob_N_T = (rng.exponential(0.4, mask_N_T.shape) * mask_N_T for _ in range(2))
    tokens = {"prompt_tokens_N": np.full(16, PROMPT), "response_tokens_N": TOKENS_N, "response_mask_N_T": mask_N_T}
    of = {"group_N": GROUP_N, "rewards_N": rewards_N, "advantages_N": advantages_N, **tokens}
    return Rollouts.from_batch(**of, entropy_N_T=entropy_N_T, logprob_N_T=-logprob_N_T)
