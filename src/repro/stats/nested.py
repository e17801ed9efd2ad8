"""Differences from a baseline when seeds are nested in base policies.

    d_ps = δ + u_p + e_ps,   u_p ~ N(0, τ²) over base policies,   e_ps ~ N(0, σ²) over seeds

d_ps is an arm less the baseline from base policy p with seed s, of which both have one run. With P base policies of S
seeds each, the mixed model's restricted maximum likelihood has a closed form, that of an analysis of variance:

    between = S Σ_p (d_p. − d..)² / (P − 1)   with mean Sτ² + σ² and P − 1 degrees of freedom
    within  = Σ_ps (d_ps − d_p.)² / P(S − 1)  with mean σ² and P(S − 1) degrees of freedom
    δ̂ = d..,  Var δ̂ = between / PS

Four base policies leave three degrees of freedom, at which an interval is 3.2 standard errors to either side. But arms
scatter much alike, so each arm's mean square is drawn towards that of all arms as far as their spread suggests (Smyth,
2004, *Linear models and empirical Bayes methods*): s² ~ s₀² F(d, d₀) gives (d₀s₀² + ds²) / (d₀ + d) with d₀ + d degrees
of freedom. A mean square between base policies below that within them is chance, since τ² is not negative: there the
restricted maximum is at τ² = 0, and both are pooled, with the degrees of freedom of both. With one base policy τ² is
not known: intervals are then over its seeds alone. With one seed σ² is not known, and they do without it.

How often a 95% interval over five seeds contains δ, by simulation of 24,000 studies each (standard errors are at most
0.13 points; of one seed 4,000, and 0.17), σ = 0.015, each arm less the same baseline. Where base policies move the
arms, each by its own τ, and the baseline not at all; in parentheses without the pooling, which was missing until this
was measured:

    τ                             0                0.005            0.01             0.02
    4 arms, 2 base policies       96.7% (90.2%)    95.7% (90.7%)    93.5% (91.1%)    91.4% (91.6%)
    9 arms, 2 base policies       96.4% (91.8%)    95.2% (92.5%)    93.5% (93.3%)    92.7% (93.8%)
    11 arms, 4 base policies      96.1% (93.5%)    95.1% (94.0%)    94.6% (94.6%)    94.7% (94.7%)
    11 arms, 8 base policies      95.9% (94.3%)    95.0% (94.6%)    94.8% (94.8%)    94.9% (94.9%)
    20 arms, 8, of one seed       94.2%            94.5%            94.6%            94.9%

Where they move the baseline as much as an arm, as may be expected, the arms' mean squares between base policies agree
partly because they share the baseline. They are then taken for better known than they are, and intervals are too
narrow, the more so the fewer base policies there are:

    τ, the baseline's too         0.005     0.01      0.02
    4 arms, 2 base policies       94.5%     91.5%     89.7%
    9 arms, 2 base policies       94.2%     91.7%     90.9%
    11 arms, 4 base policies      94.4%     93.6%     93.7%
    11 arms, 8 base policies      94.6%     94.4%     94.4%
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, polygamma, stdtr, stdtrit

MANY = 1e6  # degrees of freedom at which Student's t is normal


@dataclass(frozen=True)
class Nested:
    """Estimates of A arms. Variances are those that the intervals use, drawn together over arms.

    estimate_A: δ̂; own_A_P: an arm's difference from each base policy; between_A, within_A: mean squares with their
    degrees of freedom; policies, seeds: P and S.
    """

    estimate_A: np.ndarray
    own_A_P: np.ndarray
    between_A: np.ndarray
    within_A: np.ndarray
    between_freedom_A: np.ndarray
    within_freedom: float
    policies: int
    seeds: int

    @property
    def error_A(self) -> np.ndarray:
        """Standard error of the estimate."""
        return np.sqrt(self.between_A / (self.policies * self.seeds))

    @property
    def policy_variance_A(self) -> np.ndarray:
        """τ² over base policies, 0 where the mean squares say less."""
        return np.maximum(self.between_A - self.within_A, 0) / self.seeds

    def interval(self, confidence: float) -> tuple[np.ndarray, np.ndarray]:
        """(low_A, high_A) of δ over base policies and seeds."""
        return around(self.estimate_A, self.error_A, self.between_freedom_A, confidence)

    def p_values(self) -> np.ndarray:
        """p_A of δ = 0, two-sided; the test of `interval`."""
        with np.errstate(divide="ignore", invalid="ignore"):
            t_A = np.abs(self.estimate_A / self.error_A)
        return np.where(self.estimate_A == 0, 1.0, 2 * stdtr(self.between_freedom_A, -t_A))

    def prediction(
        self, confidence: float, seeds: int, policy: int | None = None, policies: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """(low_A, high_A) of the mean difference in one more study: `seeds` seeds on each of `policies` base policies.

        policy: its base policy, one of these; None: others of their kind, or as if base policies did not differ, where
        this is a single one. The study's own scatter is in it, so that, other than a confidence interval, it gets no
        narrower than that with more data.
        """
        if policy is not None or self.policies == 1:
            centre_A = self.own_A_P[:, policy or 0]
            error_A = np.sqrt(self.within_A * (1 / self.seeds + 1 / (seeds * policies)))
            return around(centre_A, error_A, self.within_freedom, confidence)
        # (τ² + σ²/n)/m + Var δ̂; with n = S and one base policy this is between (1 + 1/P) / S
        variance_A = (self.policy_variance_A + self.within_A / seeds) / policies + self.error_A**2
        return around(self.estimate_A, np.sqrt(variance_A), self.between_freedom_A, confidence)

    def detectable(self, confidence: float, power: float) -> np.ndarray:
        """The least |δ| that the uncorrected test finds with probability `power`, by the usual sum of two quantiles."""
        quantiles = [stdtrit(self.between_freedom_A, level) for level in ((1 + confidence) / 2, power)]
        return sum(quantiles) * self.error_A

    def seeds_to_tell(self, confidence: float, margin: float, tests: int) -> np.ndarray:
        """Seeds on each of as many base policies, were estimates and variances to stay, at which the interval would lie
        within ±margin, or, corrected for `tests` tests (Bonferroni), leave out 0; inf where no number would do."""
        distance_A = np.abs(self.estimate_A)
        ways = ((margin - distance_A, confidence), (distance_A, 1 - (1 - confidence) / tests))
        needed_A = np.full(len(distance_A), np.inf)
        for half_A, level in ways:
            error_A = np.maximum(half_A, 0) / stdtrit(self.between_freedom_A, (1 + level) / 2)
            room_A = self.policies * error_A**2 - self.policy_variance_A  # for σ²/S
            with np.errstate(divide="ignore", invalid="ignore"):
                needed_A = np.where(room_A > 0, np.minimum(needed_A, np.ceil(self.within_A / room_A)), needed_A)
        return np.where(np.isnan(self.within_A), np.nan, needed_A)


def nested(differences_A_P_S: np.ndarray) -> Nested:
    """Estimates from the differences of A arms, on P base policies with S seeds each, two or more of either. With one
    seed what takes σ² is NaN: `within_A`, `prediction` and `seeds_to_tell`.

    ValueError where a difference is missing: the closed form needs every arm on the same policies with as many seeds.
    """
    d_A_P_S = np.asarray(differences_A_P_S, float)
    _, policies, seeds = d_A_P_S.shape
    if max(policies, seeds) < 2 or not np.isfinite(d_A_P_S).all():
        missing = np.isnan(d_A_P_S).sum()
        raise ValueError(f"nested: {seeds} seeds, {missing} missing; it needs two seeds or base policies, none missing")
    own_A_P = d_A_P_S.mean(2)
    within_A, within_freedom = np.full(len(d_A_P_S), np.nan), 0
    if seeds > 1:
        within_A = ((d_A_P_S - own_A_P[..., None]) ** 2).sum((1, 2)) / (policies * (seeds - 1))
        within_A, within_freedom = moderate(within_A, policies * (seeds - 1))
    if policies > 1:
        between_A, freedom = moderate(seeds * own_A_P.var(1, ddof=1), policies - 1)
        chance_A = between_A < within_A
        shares = (policies - 1) / (policies * seeds - 1), policies * (seeds - 1) / (policies * seeds - 1)
        between_A = np.where(chance_A, shares[0] * between_A + shares[1] * within_A, between_A)
        freedom_A = np.where(chance_A, freedom + within_freedom, freedom)
    else:
        between_A, freedom_A = within_A, np.full(len(within_A), within_freedom)
    return Nested(own_A_P.mean(1), own_A_P, between_A, within_A, freedom_A, within_freedom, policies, seeds)


def moderate(variance_A: np.ndarray, freedom: float) -> tuple[np.ndarray, float]:
    """Variances drawn towards their common value, and their degrees of freedom (Smyth, 2004, section 6.2).

    d₀ and s₀² follow from mean and variance of log s², which for s² ~ s₀² F(d, d₀) are known; where the logarithms
    spread no more than chance explains, all get their common value. A variance of 0, a tie of shares of few queries,
    tells nothing of the others, and is drawn as they are. With one arm that varies, or none, all stay as they are.
    """
    variance_A = np.asarray(variance_A, float)
    if (varies_A := variance_A > 0).sum() < 2:
        return variance_A, freedom
    e_A = np.log(variance_A[varies_A]) - digamma(freedom / 2) + np.log(freedom / 2)
    excess = e_A.var(ddof=1) - polygamma(1, freedom / 2)
    if excess <= polygamma(1, MANY / 2):
        return np.full_like(variance_A, np.exp(e_A.mean())), MANY
    prior = 2 * brentq(lambda half: polygamma(1, half) - excess, 1e-3, MANY / 2)
    common = np.exp(e_A.mean() + digamma(prior / 2) - np.log(prior / 2))
    return (prior * common + freedom * variance_A) / (prior + freedom), prior + freedom


def around(centre_A: np.ndarray, error_A: np.ndarray, freedom: np.ndarray | float, confidence: float):
    half_A = stdtrit(freedom, (1 + confidence) / 2) * error_A
    return centre_A - half_A, centre_A + half_A
