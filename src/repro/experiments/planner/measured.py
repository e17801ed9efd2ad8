"""Distributions to draw from, as the embedded study measured them on its queries and responses.

Success: at each logged step of the baseline, queries have p ~ Beta(α, β), fitted to its groups. Length: the responses
of that step, relative to their mean, by how many of their group succeeded and whether they did; so difficulty,
success and length keep the correlations that were measured. Both change over training as they did there.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from repro.methods.group_sizes.posterior import fit_population


@dataclass(frozen=True)
class Measured:
    """progress_S: the share of training at the S logged steps. alpha_S, beta_S: of success probabilities then.

    lengths: {(s, r): values}: relative lengths (mean 1 over all) of responses with reward r (0 or 1) in groups with s
    of `group_size` successes, all logged steps together; entropies likewise, mean nats per token.
    """

    progress_S: np.ndarray
    alpha_S: np.ndarray
    beta_S: np.ndarray
    lengths: dict[tuple[int, int], np.ndarray]
    entropies: dict[tuple[int, int], np.ndarray]
    group_size: int

    @classmethod
    def of(cls, selection: pd.DataFrame, steps: int) -> "Measured":
        """From an arm's `selection` table, whose groups are all of one size; `steps`: of the whole run.

        ValueError where groups differ in size: the Beta is fitted to equally many rollouts of each query.
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
        """p_Q at a share of training: a query keeps its place among the others while all become easier."""
        from scipy.stats import beta

        a, b = (np.interp(progress, self.progress_S, values_S) for values_S in (self.alpha_S, self.beta_S))
        return beta.ppf(quantile_Q, a, b)

    def draw(self, p_N: np.ndarray, reward_N: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """(relative length_N, mean entropy_N) of responses with those rewards to queries with those success rates."""
        count_N = np.rint(p_N * self.group_size).astype(int)
        length_N, entropy_N = np.empty(len(p_N)), np.empty(len(p_N))
        for reward in (0, 1):
            known = np.array(sorted(s for s, r in self.lengths if r == reward))
            if len(known) == 0:  # no response ever succeeded, or failed: draw from the others
                known = np.array(sorted(s for s, _ in self.lengths))
            nearest_N = known[np.abs(count_N[:, None] - known).argmin(1)]
            for count in known:
                rows = np.flatnonzero((reward_N == reward) & (nearest_N == count))
                cell = (int(count), reward) if (int(count), reward) in self.lengths else (int(count), 1 - reward)
                place = rng.integers(len(self.lengths[cell]), size=len(rows))
                length_N[rows], entropy_N[rows] = self.lengths[cell][place], self.entropies[cell][place]
        return length_N, entropy_N
