"""What the computations of `variance_*` say about D³S's Lemma 1, Propositions 1 and 2, and sample usefulness.

What is computed exactly, or is the largest of everything drawn, has an interval of one point.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from repro.theory import verdict
from repro.theory.variance.closed_forms import averaged_bound, signal_probability

Z = 1.96  # of a 95% interval by the normal approximation
FACTOR_TOLERANCE = 0.03  # of expected gradients over GRPO's
SHARE_TOLERANCE = 0.10  # of the share of random subsets that exceed eq. 5
USEFULNESS_TOLERANCE = 0.03
NEARLY_ALL = 0.95  # the paper's "nearly 100%"


@dataclass(frozen=True, eq=False)
class Evidence:
    """The tables of one run, each as the function of its name in `variance_subsets`, `_gradients`, `_batches` makes it.

    `groups` has its bounds; `usefulness` is summarised; `keep` is the n that D¹S and PODS keep of G.
    """

    group_size: int
    keep: int
    vectors: pd.DataFrame
    binary: pd.DataFrame
    ratios: pd.DataFrame
    within: pd.DataFrame
    groups: pd.DataFrame
    factors: pd.DataFrame
    broken: pd.DataFrame
    usefulness: pd.DataFrame


def judge(evidence: Evidence) -> list[dict]:
    """The verdicts: the paper's statements as printed, then mended, then what we derived beside them."""
    return [*_lemma(evidence), *_propositions(evidence), *_renormalising(evidence), *_usefulness(evidence)]


def _lemma(evidence: Evidence) -> list[dict]:
    binary, vectors = evidence.binary, evidence.vectors
    even = pd.concat([frame.loc[frame["keep"] % 2 == 0, name] for frame, name in _lemma_variances(evidence)])
    bound_vectors, bound_binary = vectors["least"] / vectors["bound"], binary["variance"] / binary["bound"]
    looser = averaged_bound(binary["group_size"].to_numpy(), binary["keep"].to_numpy()) / binary["bound"]
    return [
        verdict.at_least(
            "Lemma 1 as printed: least variance of the best subset of any size",
            1.0,
            *_exact(min(values[name].min() for values, name in _lemma_variances(evidence))),
        ),
        verdict.at_least("Lemma 1 for even n: the same, even sizes only", 1.0, *_exact(even.min())),
        verdict.at_least(
            "Lemma 1 mended: least variance of the best subset / (1, or 1 − 1/n² for odd n < G)",
            1.0,
            *_exact(min(bound_vectors.min(), bound_binary.min())),
        ),
        verdict.at_most("(n−1)/n · G/(G−1) is never above the mended bound: largest ratio", 1.0, *_exact(looser.max())),
        verdict.at_most(
            "binary rewards: groups and sizes where Lemma 1 fails other than where n is odd and n·abs(G − 2k) < G",
            0.0,
            *_exact((binary["below"] != binary["fails"]).sum()),
        ),
    ]


def _propositions(evidence: Evidence) -> list[dict]:
    groups = evidence.groups[evidence.groups["variance"] > 0]
    centred = groups[groups["subset"].isin(["grpo", "pods"])]
    best = groups[groups["subset"] == "d1s"]
    ratios = evidence.ratios.set_index("kind")
    broken = evidence.broken["broken"]
    error = Z * np.sqrt(broken.groupby(evidence.broken["query"]).var().mean() / len(broken))
    share = float(broken.mean())
    return [
        verdict.at_most(
            "Prop. 1: largest gradient of a whole group, or of PODS's subset / 4γ",
            1.0,
            *_exact((centred["norm"] / centred["eq_4"]).max()),
        ),
        verdict.at_most(
            "Prop. 2 as printed, for any subset: share of random subsets whose gradient exceeds it",
            0.0,
            share,
            (max(0.0, share - error), share + error),
        ),
        verdict.within(
            "those are the one-sided ones: that share is the mean of pⁿ + qⁿ − p^G − q^G",
            float(evidence.broken["predicted"].mean()),
            share,
            (share - error, share + error),
            SHARE_TOLERANCE,
        ),
        verdict.at_least(
            "Prop. 2 for subsets of maximum variance: least bound / 2γ·E abs(A′) over all binary groups",
            1.0,
            *_exact(ratios.loc["best", "least"]),
        ),
        verdict.at_most(
            "Prop. 2 for subsets of maximum variance: largest gradient of D¹S / bound",
            1.0,
            *_exact((best["norm"] / best["eq_5"]).max()),
        ),
        verdict.at_most(
            "2γ·√(E A′²) in its place: largest gradient of any subset / bound",
            1.0,
            *_exact((evidence.groups["norm"] / evidence.groups["elementary"].where(lambda bound: bound > 0)).max()),
        ),
        verdict.at_least(
            "2γ·√(E A′²) is the lower bound of the two wherever successes and failures mix: least Prop. 2 / it",
            1.0,
            *_exact(ratios.loc["mixed", "sharper"]),
        ),
    ]


def _renormalising(evidence: Evidence) -> list[dict]:
    within = evidence.within
    found = [
        verdict.at_least("PODS and D¹S keep the same rollouts: share of groups", 1.0, *_exact(within["same"].mean())),
        verdict.within(
            "PODS's advantages have variance 1 in every group: the one farthest from it",
            1.0,
            *_exact(within["pods"].iloc[(within["pods"] - 1).abs().argmax()]),
            1e-4,
        ),
        verdict.at_most(
            "Var(A′) of D¹S is j(n−j)/n² · G²/(k(G−k)): largest difference",
            1e-9,
            *_exact((within["d1s"] - within["predicted"]).abs().max()),
        ),
    ]
    for method, title in (("d1s", "D¹S"), ("pods", "PODS")):
        own = evidence.factors[evidence.factors["method"] == method]
        error_Q = own["se"] / own["predicted"]
        mean, error = (own["measured"] / own["predicted"]).mean(), Z * np.sqrt((error_Q**2).sum()) / len(own)
        claim = f"expected gradient of {title} over GRPO's: measured / closed form, mean over queries"
        found.append(verdict.within(claim, 1.0, mean, (mean - error, mean + error), FACTOR_TOLERANCE))
    factors = evidence.factors.pivot(index="query", columns="method", values="predicted")
    least, largest = (factors["d1s"] / factors["pods"]).min(), factors["pods"].max()
    claim = "selecting by Var(A) makes larger gradients than by Var(R): expected, D¹S / PODS, least over queries"
    found.append(verdict.at_least(claim, 1.0, *_exact(least)))
    claim = "a pinned variance pins the gradient (not printed, but suggested): PODS / GRPO, largest over queries"
    found.append(verdict.at_most(claim, 1.0, *_exact(largest)))
    return found


def _usefulness(evidence: Evidence) -> list[dict]:
    table = evidence.usefulness.assign(gap=lambda t: (t["useful"] / t["predicted"] - 1).abs())
    cross = table[table["sampler"] == "d1s-c"].set_index("keep")
    found = []
    for sampler, title in (("d1s", "within groups (D¹S)"), ("d1s-c", "across groups (D¹S-C)")):
        worst = table.loc[table.loc[table["sampler"] == sampler, "gap"].idxmax()]
        claim = f"usefulness {title}: measured against the closed form, at the n where they differ most"
        interval = (worst["useful"] - Z * worst["useful_se"], worst["useful"] + Z * worst["useful_se"])
        found.append(verdict.within(claim, worst["predicted"], worst["useful"], interval, USEFULNESS_TOLERANCE))
    mean, error = cross.loc[evidence.keep, "useful"], Z * cross.loc[evidence.keep, "useful_se"]
    return [
        verdict.at_most(
            "usefulness of every single batch, given how many of its groups have a signal: largest difference",
            1e-9,
            *_exact(table["gap_given"].max()),
        ),
        *found,
        verdict.at_least(
            f"across groups nearly all that trains is useful, at n = {evidence.keep}",
            NEARLY_ALL,
            mean,
            (mean - error, mean + error),
        ),
        verdict.at_most(
            "D¹S-C keeps a rollout without signal only when all others are kept: such rollouts in any batch",
            0.0,
            *_exact(cross["silent_kept"].max()),
        ),
    ]


def conclude(evidence: Evidence, alpha: float, beta: float) -> str:
    """What the figures and tables show, in Markdown made from them."""
    size, keep = evidence.group_size, evidence.keep
    least = evidence.binary.loc[evidence.binary["variance"].idxmin()]
    whole = evidence.groups[(evidence.groups["subset"] == "grpo") & (evidence.groups["variance"] > 0)]
    best = evidence.groups[(evidence.groups["subset"] == "d1s") & (evidence.groups["variance"] > 0)]
    used_4, used_5 = (whole["norm"] / whole["eq_4"]).max(), (best["norm"] / best["eq_5"]).max()
    factors = evidence.factors.set_index(["method", "query"])["predicted"]
    correlation = best["norm"].rank().corr(best["variance"].rank())
    signal = float(signal_probability(alpha, beta, size))
    useful = evidence.usefulness.set_index(["sampler", "keep"])["useful"]
    return (
        f"**As printed, Lemma 1 is false for odd n and Proposition 2 for subsets in general; the first holds for "
        f"even n, the second for subsets of maximum variance.** For odd n the best subset can have as little as "
        f"1 − 1/n² ({least['variance']:.3f} for n = {least['keep']:.0f} of G = {least['group_size']:.0f}), and "
        f"{evidence.broken['broken'].mean():.0%} of random subsets of {keep} exceed Proposition 2, all of them "
        f"with equal rewards. The bounds are loose: gradients of this policy reach at most {used_4:.0%} of "
        f"Proposition 1 and, for D¹S, {used_5:.0%} of Proposition 2; "
        f"2γ√(E A′²) always holds and is lower. Renormalising pins the variance, **but not the gradient**: with the "
        f"same rollouts as D¹S, PODS's expected gradient is up to {factors['pods'].max():.1f} times GRPO's, D¹S's up "
        f"to {factors['d1s'].max():.1f} times, always along ∇p, most for the easiest and the hardest queries; the norm "
        f"of a single D¹S gradient has rank correlation {correlation:.2f} with its Var(A′). Sample usefulness across "
        f"groups is {useful['d1s-c', keep]:.0%} at n = {keep}, against {useful['d1s', keep]:.0%} within groups; with "
        f"{signal:.0%} of groups with a signal it falls only from n = {signal * size:.1f} of {size} on."
    )


def save(folder: str | Path, evidence: Evidence, tightness: pd.DataFrame, verdicts: list[dict]) -> None:
    """Write the tables as parquet (of `groups` the medians) and verdict.json, each file whole or not at all."""
    tables = {
        name: getattr(evidence, name) for name in ("vectors", "binary", "ratios", "within", "factors", "usefulness")
    }
    numbers = ["norm", "mean_abs", "moment", "variance", "triangle"]
    medians = evidence.groups.groupby(["query", "rate", "subset"], sort=False)[numbers].median().reset_index()
    verdict.save(folder, {**tables, "norms": medians, "tightness": tightness}, verdicts)


def _lemma_variances(evidence: Evidence) -> list[tuple[pd.DataFrame, str]]:
    return [(evidence.binary, "variance"), (evidence.vectors, "least")]


def _exact(value: float) -> tuple[float, tuple[float, float]]:
    """A value and its interval of one point; rounded, as 1 is often reached exactly but for rounding."""
    value = round(float(value), 9)
    return value, (value, value)
