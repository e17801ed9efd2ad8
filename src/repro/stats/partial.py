"""Partial pooling: the differences of many arms, each drawn towards the mean of its family.

    d_a = δ_a + e_a + e_0,   δ_a ~ N(μ_g, ω²) for the arms a of family g,   e_a ~ N(0, o_a²),   e_0 ~ N(0, c)

d_a is the mean difference from the baseline over base policies and seeds. All arms share the baseline's runs, and their
error e_0 moves all of them alike: it is no reason to draw them together, and adds to every variance. o_a is the
standard error, by `repro.stats.nested`, of the arm less the mean of all arms (times A/(A−1), exact where arms scatter
alike); c is what the mean of all arms has beyond that. For one ω, with w_a = 1/(ω² + o_a²) and B_a = ω² w_a,

    μ_g = Σ w_a d_a / Σ w_a,   δ_a = μ_g + B_a (d_a − μ_g),   Var δ_a = B_a o_a² + (1 − B_a)² / Σ w_a + c

which is the posterior under a flat prior of μ. ω has one too, up to WIDEST standard deviations of the arms about their
families' means, and estimates are averaged over it (Gelman et al., 2013, *Bayesian data analysis*, section 5.4).
Intervals are Student's t about the mean of that mixture, with its standard deviation.

The highest of 57 raw differences is highest partly by luck. How often a 95% interval contains δ_a, by simulation of 57
arms in six families, two base policies, five seeds that scatter by 0.02, τ the scatter of every arm and of the baseline
between base policies; in parentheses the raw interval of `repro.stats.nested`:

    ω, and τ                             0, 0.005         0.01, 0.005      0.02, 0          0.01, 0.01
    all arms                             96% (95%)        95% (95%)        97% (96%)        93% (93%)
    the arm with the highest estimate    96% (83%)        95% (91%)        97% (95%)        91% (84%)
    root mean square error               0.0076 (0.0101)  0.0094 (0.0101)  0.0087 (0.0088)  0.0120 (0.0133)

Effects of a base policy that a family shares are not in the model: where they scatter by 0.01, intervals hold 85%.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from repro.stats.nested import around, nested

WIDEST = 4.0
SPREADS = np.linspace(0, WIDEST, 61)  # values of ω, in these units


@dataclass(frozen=True)
class Partial:
    """Estimates of A arms in families G, the index of `families`.

    estimate_A, error_A: of δ. weight_A: how much of an arm's estimate is its own raw difference; the rest is the other
    arms'. freedom_A: degrees of freedom of Student's t. spread: ω. mean_G, mean_error_G: of μ.
    """

    estimate_A: np.ndarray
    error_A: np.ndarray
    weight_A: np.ndarray
    freedom_A: np.ndarray
    spread: float
    families: pd.Index
    mean_G: np.ndarray
    mean_error_G: np.ndarray

    def interval(self, confidence: float) -> tuple[np.ndarray, np.ndarray]:
        """(low_A, high_A) of δ."""
        return around(self.estimate_A, self.error_A, self.freedom_A, confidence)

    def means(self, confidence: float) -> pd.DataFrame:
        """A row per family (the index): mean, mean_low, mean_high of μ, with the least degrees of freedom of an arm."""
        low_G, high_G = around(self.mean_G, self.mean_error_G, self.freedom_A.min(), confidence)
        return pd.DataFrame({"mean": self.mean_G, "mean_low": low_G, "mean_high": high_G}, index=self.families)


def partially_pooled(differences_A_P_S: np.ndarray, family_A: Sequence[str]) -> Partial:
    """The estimates from the differences of A arms on P base policies with S seeds each. ValueError where there are not
    two arms more than families, a family for each arm, or two seeds, and where an arm does not scatter at all."""
    d_A_P_S = np.asarray(differences_A_P_S, float)
    code_A, families = pd.factorize(pd.Series(family_A))
    arms = len(d_A_P_S)
    if len(code_A) != arms or (code_A < 0).any() or arms - len(families) < 2:
        raise ValueError(
            f"partial pooling: {arms} arms, {(code_A >= 0).sum()} with a family, of {len(families)} families; it takes "
            "a family for each, and two arms more than families"
        )
    d_A = d_A_P_S.mean((1, 2))
    apart = nested(d_A_P_S - d_A_P_S.mean(0))
    together = nested(d_A_P_S.mean(0)[None])
    own_A = apart.error_A**2 * arms / (arms - 1)
    if not (own_A > 0).all():
        raise ValueError("partial pooling: an arm differs from the others by the same in every run; leave it out")
    shared = max(float(together.error_A[0] ** 2 - own_A.mean() / arms), 0.0)
    member_A_G = np.eye(len(families))[code_A]
    off_A = d_A - (member_A_G @ (member_A_G.T @ d_A / member_A_G.sum(0)))
    estimate, variance, weight_A, mean, mean_variance, spread = _averaged(SPREADS * off_A.std(), d_A, own_A, member_A_G)
    variance_A = variance + shared
    # of c: those of the arms' mean over all runs, as if base policies did not differ in it
    freedom_A = _freedom(variance, apart.between_freedom_A, shared, d_A_P_S[0].size - 1)
    return Partial(
        estimate,
        np.sqrt(variance_A),
        weight_A,
        freedom_A,
        spread,
        pd.Index(families, name="family"),
        mean,
        np.sqrt(mean_variance + shared),
    )


def _averaged(
    spread_W: np.ndarray, d_A: np.ndarray, own_A: np.ndarray, member_A_G: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    """Of δ mean, variance and weight, of μ mean and variance, without c; ω: over `spread_W`, by their restricted
    likelihood."""
    w_W_A = 1 / (spread_W[:, None] ** 2 + own_A)
    sum_W_G = w_W_A @ member_A_G
    mean_W_G = (w_W_A * d_A) @ member_A_G / sum_W_G
    at_W_A, share_W_A = mean_W_G @ member_A_G.T, spread_W[:, None] ** 2 * w_W_A
    rest_W_A = 1 / (sum_W_G @ member_A_G.T)
    estimate_W_A = at_W_A + share_W_A * (d_A - at_W_A)
    variance_W_A = share_W_A * own_A + (1 - share_W_A) ** 2 * rest_W_A
    weight_W_A = share_W_A + (1 - share_W_A) * w_W_A * rest_W_A
    log_W = (np.log(w_W_A) - w_W_A * (d_A - at_W_A) ** 2).sum(1) / 2 - np.log(sum_W_G).sum(1) / 2
    chance_W = np.exp(log_W - log_W.max())
    chance_W /= chance_W.sum()
    of_arm, of_mean = _mixed(chance_W, estimate_W_A, variance_W_A), _mixed(chance_W, mean_W_G, 1 / sum_W_G)
    return *of_arm, chance_W @ weight_W_A, *of_mean, float(chance_W @ spread_W)


def _mixed(chance_W: np.ndarray, mean_W_N: np.ndarray, variance_W_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of a mixture of distributions with these means and variances."""
    mean_N = chance_W @ mean_W_N
    return mean_N, chance_W @ (variance_W_N + (mean_W_N - mean_N) ** 2)


def _freedom(variance_A: np.ndarray, freedom_A: np.ndarray, shared: float, of_shared: int) -> np.ndarray:
    """Degrees of freedom (Satterthwaite) of the sums of two variances."""
    return (variance_A + shared) ** 2 / (variance_A**2 / freedom_A + shared**2 / of_shared)
