"""Partial pooling: the differences of many arms, each drawn towards the mean of its family.

    d_a = δ_a + e_a,   δ_a ~ N(μ_g, ω²) for the arms a of family g,   e ~ N(0, R)

d_a is the mean difference from the baseline over base policies and seeds. All arms share the baseline's runs, and an
error that moves all of them alike is no reason to draw them together: only what an arm has alone is. So R is diag(o²)
plus a constant: o_a is the standard error, by `repro.stats.nested`, of the arm less the mean of all arms, and the
constant is what the variance of an arm less the baseline has beyond o², mean over arms. μ has a flat prior and so has
ω, over which the estimates are averaged (Gelman et al., 2013, *Bayesian data analysis*, section 5.4).

The highest of 57 raw differences is highest partly by luck. How often a 95% interval contains δ_a, by simulation of 57
arms in six families, two base policies, five seeds that scatter by 0.02, the baseline's too; in parentheses the raw
interval of `repro.stats.nested`:

    ω, and τ between base policies       0, 0.005         0.01, 0.005      0.02, 0          0.01, 0.01
    all arms                             93% (95%)        94% (94%)        96% (96%)        89% (92%)
    the arm with the highest estimate    93% (84%)        94% (89%)        97% (94%)        88% (83%)
    root mean square error               0.0076 (0.0101)  0.0095 (0.0102)  0.0089 (0.0091)  0.0124 (0.0136)

Two base policies hardly tell how far the baseline itself differs between them (the last column).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from repro.stats.nested import nested

SPREADS = np.linspace(0, 4, 61)  # values of ω, in standard deviations of the estimates


@dataclass(frozen=True)
class Partial:
    """Estimates of A arms in families G, the index of `families`.

    estimate_A, error_A: of δ. weight_A: how much of an arm's estimate is its own raw difference; the rest is the other
    arms'. freedom_A: degrees of freedom of Student's t. spread: ω. mean_G, mean_error_G:
    of μ.
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
        half_A = stdtrit(self.freedom_A, (1 + confidence) / 2) * self.error_A
        return self.estimate_A - half_A, self.estimate_A + half_A

    def means(self, confidence: float) -> pd.DataFrame:
        """A row per family (the index): mean, mean_low, mean_high of μ."""
        half_G = stdtrit(self.freedom_A.min(), (1 + confidence) / 2) * self.mean_error_G
        ends = {"mean": self.mean_G, "mean_low": self.mean_G - half_G, "mean_high": self.mean_G + half_G}
        return pd.DataFrame(ends, index=self.families)


def partially_pooled(differences_A_P_S: np.ndarray, family_A: Sequence[str]) -> Partial:
    """The estimates from the differences of A arms on P base policies with S seeds each. ValueError where no family has
    two arms, or as `nested` has it."""
    d_A_P_S = np.asarray(differences_A_P_S, float)
    code_A, families = pd.factorize(pd.Series(family_A))
    member_A_G = np.eye(len(families))[code_A]
    if len(families) == len(d_A_P_S):
        raise ValueError("partial pooling: no family has two arms, so there is nothing to draw from")
    fit = nested(d_A_P_S)
    own_A = nested(d_A_P_S - d_A_P_S.mean(0)).error_A ** 2 * len(d_A_P_S) / (len(d_A_P_S) - 1)
    shared = max(float(np.mean(fit.error_A**2 - own_A)), 0.0)
    noise_A_A = np.diag(own_A) + shared
    spreads_W = SPREADS * fit.estimate_A.std()
    given_W = [_given(spread, fit.estimate_A, member_A_G, noise_A_A) for spread in spreads_W]
    log_W = np.array([given.log_likelihood for given in given_W])
    weight_W = np.exp(log_W - log_W.max()) / np.exp(log_W - log_W.max()).sum()
    estimate_A, error_A = _mixed(weight_W, [(given.estimate_A, given.variance_A) for given in given_W])
    mean_G, mean_error_G = _mixed(weight_W, [(given.mean_G, given.mean_variance_G) for given in given_W])
    return Partial(
        estimate_A,
        error_A,
        weight_W @ [given.weight_A for given in given_W],
        _freedom(error_A**2, shared, fit.between_freedom_A, d_A_P_S[0].size - 1),
        float(weight_W @ spreads_W),
        pd.Index(families, name="family"),
        mean_G,
        mean_error_G,
    )


def _freedom(variance_A: np.ndarray, shared: float, of_rest_A: np.ndarray, of_shared: int) -> np.ndarray:
    """Degrees of freedom (Satterthwaite) of variances whose part `shared` is known from the baseline's runs alone."""
    shared_A = np.minimum(shared, variance_A)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom_A = variance_A**2 / (shared_A**2 / of_shared + (variance_A - shared_A) ** 2 / of_rest_A)
    return np.where(variance_A > 0, freedom_A, of_rest_A)


@dataclass(frozen=True)
class _Given:
    """What follows for one ω; log_likelihood is the restricted one, up to a constant."""

    estimate_A: np.ndarray
    variance_A: np.ndarray
    weight_A: np.ndarray
    mean_G: np.ndarray
    mean_variance_G: np.ndarray
    log_likelihood: float


def _given(spread: float, d_A: np.ndarray, member_A_G: np.ndarray, noise_A_A: np.ndarray) -> _Given:
    """Generalised least squares for μ, the best linear unbiased predictor of δ and its variance (Henderson, 1975)."""
    cover_A_A = spread**2 * np.eye(len(d_A)) + noise_A_A
    inverse_A_A = np.linalg.inv(cover_A_A)
    known_G_G = member_A_G.T @ inverse_A_A @ member_A_G
    mean_G_G = np.linalg.inv(known_G_G)
    to_mean_G_A = mean_G_G @ member_A_G.T @ inverse_A_A
    own_A_A = spread**2 * inverse_A_A
    rest_A_G = member_A_G - own_A_A @ member_A_G
    smooth_A_A = own_A_A + rest_A_G @ to_mean_G_A
    variance_A_A = spread**2 * (np.eye(len(d_A)) - own_A_A) + rest_A_G @ mean_G_G @ rest_A_G.T
    off_A = d_A - member_A_G @ to_mean_G_A @ d_A
    logs = np.linalg.slogdet(cover_A_A)[1] + np.linalg.slogdet(known_G_G)[1]
    likelihood = -(logs + off_A @ inverse_A_A @ off_A) / 2
    estimates = smooth_A_A @ d_A, np.diag(variance_A_A), np.diag(smooth_A_A)
    return _Given(*estimates, to_mean_G_A @ d_A, np.diag(mean_G_G), likelihood)


def _mixed(weight_W: np.ndarray, moments: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of a mixture of distributions with these means and variances."""
    means, variances = (np.array(part) for part in zip(*moments, strict=True))
    mean = weight_W @ means
    return mean, np.sqrt(weight_W @ (variances + (means - mean) ** 2))
