"""Distributions of success rates, lengths and entropies, measured in the embedded study, from which batches are
simulated.

Success: at each logged step of the baseline, p ~ Beta(α, β) over queries, fitted to its groups; it changes during
training as it did there. Length and entropy: resampled from the responses of all logged steps with the same reward and
as many successes in their group, so that difficulty, success and length stay correlated as measured.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from repro.methods.group_sizes.posterior import fit_population


@dataclass(frozen=True)
class Measured:
    """progress_S: share of training done at the S logged steps. alpha_S, beta_S: of the success rates at these steps.

    lengths: {(s, r): values}, relative lengths (mean 1 overall) of responses with reward r (0 or 1) in groups with s
    successes of `group_size`, all logged steps pooled. entropies: likewise, mean nats per token.
    """

    progress_S: np.ndarray
    alpha_S: np.ndarray
    beta_S: np.ndarray
    lengths: dict[tuple[int, int], np.ndarray]
    entropies: dict[tuple[int, int], np.ndarray]
    group_size: int

    @classmethod
    def of(cls, selection: pd.DataFrame, steps: int) -> "Measured":
        """From an arm's `selection` table. `steps`: of the whole run.

        ValueError if groups differ in size: the Beta is fitted to the same number of rollouts of each query.
        """
        groups = selection.groupby(["step", "seed", "query"])["reward"]
        size_Q, success_Q = groups.size(), groups.sum()
        size = int(size_Q.iloc[0])
        if (size_Q != size).any():
            raise ValueError(
                f"planner: groups of {size_Q.min()} to {size_Q.max()} rollouts; give it an arm with groups of one size"
            )
        fits = {step: fit_population(part.to_numpy(int), size) for step, part in success_Q.groupby(level="step")}
        alpha_S, beta_S = np.array(list(fits.values())).T
        cells = selection.assign(
            successes=groups.transform("sum").astype(int),
            relative=selection["response_tokens"] / selection["response_tokens"].mean(),
        )
        cells = dict(list(cells.groupby(["successes", "reward"])))
        lengths = {(int(s), int(r)): part["relative"].to_numpy(float) for (s, r), part in cells.items()}
        entropies = {(int(s), int(r)): part["entropy"].to_numpy(float) for (s, r), part in cells.items()}
        return cls(np.array(list(fits), float) / steps, alpha_S, beta_S, lengths, entropies, size)

    def success(self, quantile_Q: np.ndarray, progress: float) -> np.ndarray:
        """p_Q at a share of training: queries keep their order of difficulty while all of them become easier."""
        from scipy.stats import beta

        a, b = (np.interp(progress, self.progress_S, values_S) for values_S in (self.alpha_S, self.beta_S))
        return beta.ppf(quantile_Q, a, b)

    def draw(self, p_N: np.ndarray, reward_N: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """(relative length_N, mean entropy_N) of responses with these rewards to queries with these success rates."""
        count_N = np.rint(p_N * self.group_size).astype(int)
        length_N, entropy_N = np.empty(len(p_N)), np.empty(len(p_N))
        for reward in (0, 1):
            known = np.array(sorted(s for s, r in self.lengths if r == reward))
            if len(known) == 0:  # no response with this reward: draw from the others
                known = np.array(sorted(s for s, _ in self.lengths))
            nearest_N = known[np.abs(count_N[:, None] - known).argmin(1)]
            for count in known:
                rows = np.flatnonzero((reward_N == reward) & (nearest_N == count))
                cell = (int(count), reward) if (int(count), reward) in self.lengths else (int(count), 1 - reward)
                place = rng.integers(len(self.lengths[cell]), size=len(rows))
                length_N[rows], entropy_N[rows] = self.lengths[cell][place], self.entropies[cell][place]
        return length_N, entropy_N
