"""Closed forms of selection by advantage variance (D³S, section 2.2 and appendices B.1 to B.3).

Of a group of G rollouts, k have reward 1, the others 0; A is standardised over the whole group (population variance
1), a group of equal rewards has A = 0 and is called silent. A′ are the advantages of a subset of n. γ bounds the
operator norm of ∇z, the Jacobian of the logits. Variances are the population's, as the paper's proofs have them.

Every function takes arrays that broadcast against each other. Impossible sizes raise ValueError.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, gammaln, xlog1py, xlogy

Array = NDArray[np.float64]

# All in units of γ. Eq. 4 is loose: its proof's own steps give 2·E|A| ≤ 2, and with the 2-norm in eq. 18 √2·E|A|.
PROPOSITION_1 = 4.0
SCORE = np.sqrt(2.0)  # ‖e − π‖₂ ≤ √2 for a one-hot e and a distribution π; eq. 18 bounds it by the 1-norm's 2
# A whole group of one-token responses: ΣA = 0 cancels π, and what is left sums to ½ above zero and ½ below. Attained.
ONE_TOKEN = np.sqrt(0.5)


def lemma_bound(group_size: ArrayLike, keep: ArrayLike) -> Array:
    """How much variance the best subset of n has at least, whatever the rewards: Lemma 1, mended, and sharp for even G.

    1 for even n and for n = G; 1 − 1/n² for other odd n, attained by half successes.
    Even: take the n/2 smallest and n/2 largest. What lies between them is no farther from their mean than half the
    distance of the two halves' means, hence no farther than their standard deviation, so leaving it out lowers nothing.
    Odd: of the n + 1 just found, leaving out one at random keeps the sample variance in expectation, so some choice
    has at least (n−1)/n · (n+1)/n. (Lemma 1 has 1 throughout; eq. 44 of its proof lacks a factor (n+1)/n.)
    """
    group_size, keep = _sizes(group_size, keep)
    return np.where((keep % 2 == 0) | (keep == group_size), 1.0, 1.0 - 1.0 / keep.astype(float) ** 2)


def averaged_bound(group_size: ArrayLike, keep: ArrayLike) -> Array:
    """(n−1)/n · G/(G−1), a simpler bound that random omission from all G gives; never above `lemma_bound`."""
    group_size, keep = _sizes(group_size, keep)
    return (keep - 1) / keep * (group_size / (group_size - 1))


def lemma_fails(group_size: ArrayLike, successes: ArrayLike, keep: ArrayLike) -> NDArray[np.bool_]:
    """Whether no subset of n has variance 1, rewards 0 and 1: exactly for odd n with n·|G − 2k| < G.

    The best subset is as balanced as n allows: (n²−1)/(4n²) · G²/(k(G−k)) < 1 says the same.
    """
    group_size, keep = _sizes(group_size, keep)
    successes = _successes(group_size, successes)
    signal = (successes > 0) & (successes < group_size)
    return signal & (keep % 2 == 1) & (keep * np.abs(group_size - 2 * successes) < group_size)


def kept_successes(group_size: ArrayLike, successes: ArrayLike, keep: ArrayLike) -> NDArray[np.int64]:
    """j, the successes in a subset of n of maximum variance: half, rounded up, or as near as the group allows.

    For odd n, one failure more than successes is as good as one less. Among rewards that tie goes to the successes;
    among advantages their rounding decides it.
    """
    group_size, keep = _sizes(group_size, keep)
    successes = _successes(group_size, successes)
    return np.clip((keep + 1) // 2, np.maximum(keep - (group_size - successes), 0), np.minimum(successes, keep))


def selected_variance(group_size: ArrayLike, successes: ArrayLike, keep: ArrayLike) -> Array:
    """Var(A′) of D¹S (eq. 6): j(n−j)/n² · G²/(k(G−k)); 0 for a silent group. With j = n/2 it is 1/(4 p̂(1−p̂)).

    PODS keeps the same rollouts, A being a rising function of the reward, and then normalises over them: 1 always.
    """
    group_size, keep = _sizes(group_size, keep)
    successes = _successes(group_size, successes)
    kept = kept_successes(group_size, successes, keep)
    spread = successes * (group_size - successes)
    return kept * (keep - kept) / keep.astype(float) ** 2 * group_size**2 / np.maximum(spread, 1)


def proposition_2(variance: ArrayLike, group_size: ArrayLike) -> Array:
    """Eq. 5: 3·2^(1/3)·(√(G−1))^(1/3)·Var(A′)^(1/3), in units of γ.

    Its proof bounds P(|A′| > c) by Var(A′)/c², which needs E A′ = 0; a subset's mean is not zero. With E A′² in place
    of Var(A′) the proof is sound, and `elementary_bound` is then lower by a factor of 3/2^(2/3) at least.
    """
    group_size = np.asarray(group_size, dtype=float)
    return 3 * np.cbrt(2.0 * np.sqrt(group_size - 1) * np.asarray(variance, dtype=float))


def elementary_bound(second_moment: ArrayLike) -> Array:
    """2·√(E A′²) ≥ 2·E|A′|, in units of γ: Cauchy and Schwarz with eq. 18, for every subset of any rewards."""
    return 2 * np.sqrt(np.asarray(second_moment, dtype=float))


def one_sided_probability(rate: ArrayLike, group_size: ArrayLike, keep: ArrayLike) -> Array:
    """P(n random rollouts of a group agree while the group does not) = pⁿ + qⁿ − p^G − q^G, q = 1 − p.

    Such a subset has Var(A′) = 0, so eq. 5 says that its gradient is zero; it is not.
    """
    p = np.asarray(rate, dtype=float)
    group_size, keep = _sizes(group_size, keep)
    return p**keep + (1 - p) ** keep - p**group_size - (1 - p) ** group_size


def gradient_factor(rate: ArrayLike, group_size: int, keep: int, method: str) -> Array:
    """c of E ∇Ĵ = c·∇p(x), exactly, p(x) the probability of success: what a method's expected gradient is (…,).

    Given the group's k, a success has the mean score ∇p/p and a failure −∇p/q, whichever of them are kept (responses
    of equal length, so that E ∇ log π = 0 in eq. 14). So with advantages a of successes and b of failures
    c = E_k[(j·a/p − (n−j)·b/q)/n]. `method`: grpo (the whole group), d1s, or pods. For large G and even n, small
    beside Gp and Gq, they are 1/√(pq), (p² + q²)/(2 (pq)^(3/2)) and 1/(2pq).
    """
    p_R = np.asarray(rate, dtype=float)[..., None]
    k = np.arange(1, group_size)
    n, j = (group_size, k) if method == "grpo" else (keep, kept_successes(group_size, k, keep))
    share = j / n if method == "pods" else k / group_size  # of successes among those that the advantages refer to
    high, low = np.sqrt((1 - share) / share), -np.sqrt(share / (1 - share))
    weights = binomial_pmf(k, group_size, p_R)
    return (weights * (j * high / p_R - (n - j) * low / (1 - p_R)) / n).sum(axis=-1)


def limit_ratio(rate: ArrayLike, method: str) -> Array:
    """A method's expected gradient over GRPO's as G → ∞, n even: d1s 2v − 1, pods √v, with v = 1/(4pq) the variance of
    the advantages that D¹S keeps."""
    p = np.asarray(rate, dtype=float)
    v = 1 / (4 * p * (1 - p))
    return {"grpo": np.ones_like(v), "d1s": 2 * v - 1, "pods": np.sqrt(v)}[method]


def binomial_pmf(k: ArrayLike, n: int, rate: ArrayLike) -> Array:
    """P(k of n succeed), each with probability `rate`."""
    k, p = np.asarray(k, dtype=float), np.asarray(rate, dtype=float)
    return np.exp(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + xlogy(k, p) + xlog1py(n - k, -p))


def signal_probability(alpha: float, beta: float, group_size: ArrayLike) -> Array:
    """u, the share of groups whose rewards differ, for success rates p ~ Beta(α, β): 1 − E p^G − E q^G."""
    if not (alpha > 0 and beta > 0):
        raise ValueError(f"alpha = {alpha}, beta = {beta}: both must be positive")
    size = np.asarray(group_size, dtype=float)
    all_right = np.exp(betaln(alpha + size, beta) - betaln(alpha, beta))
    all_wrong = np.exp(betaln(alpha, beta + size) - betaln(alpha, beta))
    return 1 - all_right - all_wrong


def useful_given(signal: ArrayLike, groups: int, group_size: int, keep: ArrayLike, cross: bool) -> Array:
    """Sample usefulness rate (section 4.5): groups with a signal among those trained on, M of a batch of B having one.

    Within groups (D¹S, GRPO) every group trains and the rate is M/B, whatever n. Across groups (eq. 7) a rollout
    without signal is kept only when the M·G with one are fewer than B·n: it could be exchanged for one of those with a
    larger variance, as advantages sum to zero in a group. The rest is filled with silent groups, one after the other:
    M/(M + ⌈(Bn − MG)/G⌉), and 1 as soon as M/B ≥ n/G. A batch without any signal counts as 0.
    """
    group_size, keep = _sizes(group_size, keep)
    signal = np.asarray(signal)
    missing = np.maximum(0, groups * keep - signal * group_size)
    trained = signal - (-missing // group_size) if cross else np.full(missing.shape, groups)
    return signal / trained


def useful_groups(share_with_signal: float, groups: int, group_size: int, keep: ArrayLike, cross: bool) -> Array:
    """E of `useful_given` over M ~ Bin(B, u), u the share of groups with a signal (see `signal_probability`).

    Within groups u; across groups min(1, u·G/n) as B grows.
    """
    signal_M = np.arange(groups + 1)
    weights_M = binomial_pmf(signal_M, groups, share_with_signal)
    keep_1 = np.asarray(keep)[..., None]
    return (weights_M * useful_given(signal_M, groups, group_size, keep_1, cross)).sum(axis=-1)


def _sizes(group_size: ArrayLike, keep: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    group_size, keep = np.asarray(group_size), np.asarray(keep)
    if (keep < 2).any() or (keep > group_size).any():
        raise ValueError(f"keep = {keep}, group_size = {group_size}: need 2 <= keep <= group_size")
    return group_size, keep


def _successes(group_size: NDArray[np.int64], successes: ArrayLike) -> NDArray[np.int64]:
    successes = np.asarray(successes)
    if (successes < 0).any() or (successes > group_size).any():
        raise ValueError(f"successes = {successes}, group_size = {group_size}: need 0 <= successes <= group_size")
    return successes
