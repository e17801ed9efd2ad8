"""The claims of *D³S* (arXiv 2509.22115) about training with rollouts: accuracy, speed and what is mathematics.

Sizes in points are ranges over the models for which the paper has both figures, averages of its seven benchmarks. The
paper does not say which checkpoint its tables show; ours is the last. Where the paper has no number, the claim is one
of direction. The paper clips GRPO and GSPO at 0.2 (Table 5); our arms clip GRPO at 0.2 and 0.28, as Cost-Aware Learning
does, and GSPO at the far narrower bounds of its own authors.
"""

from repro.experiments.claims import exact
from repro.experiments.claims.claim import D3S, MATHEMATICS, Claim
from repro.experiments.claims.measures import Measure, cost, difference, least, ratio, speedup
from repro.experiments.claims.paper_tables import TABLE_1_ROW, pass_gain
from repro.experiments.claims.per_seed import EARLY, FINAL, Statistic, solved, summed
from repro.experiments.claims.verdicts import Expectation

ALIGNED = "Qwen2.5-Math-7B, DeepScaleR data"
BOTH_SIZES = "Qwen2.5-Math-7B and -1.5B"
UNALIGNED = "Llama3.1-8B-Instruct"
PASS = {1: FINAL, 8: solved(8), 16: solved(16)}


def claim(
    name: str, place: str, statement: str, expected: Expectation, measure: Measure, setting: str = ALIGNED, **parts
) -> Claim:
    return Claim(f"d3s-{name}", D3S, place, statement, setting, expected, measure, **parts)


ALL = (1, 8, 16)


def _passes(
    name: str, place: str, what: str, method: str, other: str, arm: str, base: str, ks=(1, 8), model="", lower=False
) -> list[Claim]:
    """One claim for each k: `arm` against `base`, the size from the paper's tables for `method` and `other`."""
    return [
        claim(
            f"{name}-pass-{k}",
            "App. D.2, Table 7" if k == 16 else place,
            f"{what} in pass@{k}.",
            Expectation("lower" if lower else "higher", pass_gain(method, other, k, model)),
            difference(PASS[k], arm, base),
            f"{model}, DeepScaleR data" if model else "every model of the paper with both figures",
        )
        for k in ks
    ]


MAIN = [
    *_passes("grpo", "§4.2, Tables 1 and 6", "D³S beats GRPO", "D3S", "GRPO", "d3s", "grpo", (1, 8, 16)),
    *_passes("pods", "§4.2, Table 1", "D³S beats PODS", "D3S", "PODS", "d3s", "pods", (1, 8, 16)),
    *_passes("gspo", "§4.2, Table 1", "With GSPO, D³S beats no selection", "GSPO+D3S", "GSPO", "d3s-gspo", "gspo"),
    *_passes(
        "gspo-pods", "§4.2, Table 1", "With GSPO, D³S beats PODS", "GSPO+D3S", "GSPO+PODS", "d3s-gspo", "pods-gspo"
    ),
    *_passes("pods-grpo", "Table 1", "PODS beats GRPO", "PODS", "GRPO", "pods", "grpo", (1, 8, 16)),
    *_passes("gspo-grpo", "Table 1", "GSPO beats GRPO", "GSPO", "GRPO", "gspo", "grpo"),
    claim(
        "pods-gspo",
        "Table 1",
        "With GSPO, PODS gains nothing on average over models (+0.4 and −0.4 points of pass@1).",
        Expectation("equal", margin=1.0),
        difference(FINAL, "pods-gspo", "gspo"),
        BOTH_SIZES,
    ),
]

PARTS = [
    *_passes(
        "d1s", "§4.3, Tables 2 and 6", "D¹S (samples within groups) beats GRPO", "D1S", "GRPO", "d1s", "grpo", ALL
    ),
    *_passes(
        "d1s-c", "§4.3, Tables 2 and 6", "D¹S-C (across groups) beats GRPO", "D1S-C", "GRPO", "d1s-c", "grpo", ALL
    ),
    *_passes("d2s", "§4.3, Tables 2 and 6", "D²S (and tokens) beats GRPO", "D2S", "GRPO", "d2s", "grpo", ALL),
    *_passes(
        "cross",
        "Table 2",
        "D¹S-C beats D¹S on Qwen (on both Llama models it is behind, Table 6)",
        "D1S-C",
        "D1S",
        "d1s-c",
        "d1s",
        model="Qwen2.5-Math-7B",
    ),
    *_passes(
        "tokens",
        "Tables 2 and 6",
        "Selecting tokens too, without a schedule, loses: D²S is behind D¹S-C",
        "D2S",
        "D1S-C",
        "d2s",
        "d1s-c",
        lower=True,
    ),
    *_passes(
        "schedule",
        "§4.3, Table 2",
        "The schedule gains: D³S beats D²S on Qwen (Table 6: on Llama3.1 too, on OpenMath2 not)",
        "D3S",
        "D2S",
        "d3s",
        "d2s",
        ALL,
        model="Qwen2.5-Math-7B",
    ),
    *_passes("within", "App. D.1, Table 6", "On Llama models D³S-I beats D³S", "D3S-I", "D3S", "d3s-i", "d3s"),
    claim(
        "best-of-parts",
        "§4.3, Table 2",
        "D³S is better than each of its parts D¹S, D¹S-C and D²S (here: than the best of them, pass@1).",
        Expectation("higher", min(pass_gain("D3S", part, 1, "Qwen2.5-Math-7B")[0] for part in ("D1S", "D1S-C", "D2S"))),
        least(*(difference(FINAL, "d3s", part) for part in ("d1s", "d1s-c", "d2s"))),
    ),
]

SPEED = [
    claim(
        "speed-grpo",
        "§4.4, Table 3",
        "D³S is at GRPO's accuracy 2.04 (7B) and 1.57 times (1.5B) sooner by the clock.",
        Expectation("higher", (1.57, 2.04), "ratio"),
        speedup("d3s", "grpo"),
        BOTH_SIZES,
        timed=True,
    ),
    claim(
        "speed-gspo",
        "§4.4, Table 3",
        "With GSPO, D³S is at GSPO's accuracy 5.51 (7B) and 1.10 times (1.5B) sooner by the clock.",
        Expectation("higher", (1.10, 5.51), "ratio"),
        speedup("d3s-gspo", "gspo"),
        BOTH_SIZES,
        timed=True,
    ),
    claim(
        "relative-grpo",
        "§4.4, Table 3",
        "D³S ends 6% (7B) and 4% (1.5B) above GRPO's accuracy (read as relative; the paper does not say of what, and "
        "the averages of Table 1 differ by 15% and 3%).",
        Expectation("higher", (1.04, 1.06), "ratio"),
        ratio(FINAL, "d3s", "grpo"),
        BOTH_SIZES,
    ),
    claim(
        "relative-gspo",
        "§4.4, Table 3",
        "With GSPO, D³S ends 17% (7B) and 2% (1.5B) above GSPO's accuracy (read as relative; the averages of Table 1 "
        "differ by 8% and 0%).",
        Expectation("higher", (1.02, 1.17), "ratio"),
        ratio(FINAL, "d3s-gspo", "gspo"),
        BOTH_SIZES,
    ),
    claim(
        "steps",
        "§1, Fig. 1c",
        "D³S converges faster: it is at GRPO's peak in fewer steps.",
        Expectation("lower", None, "ratio"),
        cost("d3s", "grpo", "step"),
    ),
    claim(
        "token-share",
        "§1, Fig. 1a",
        "D³S optimises fewer than 20% of the tokens that GRPO does (tokens in the loss; set by its schedule).",
        Expectation("lower", None, "ratio", null=0.2),
        ratio(summed("loss_tokens"), "d3s", "grpo"),
    ),
]


def _half(name: str, title: str, statistic: Statistic, direction: str, what: str) -> Claim:
    half = "early" if statistic is EARLY else "late"
    return claim(
        f"{half}-{name}",
        "§4.5, Fig. 3",
        f"{title} {what} (AIME24).",
        Expectation(direction),
        difference(statistic, name, "grpo"),
    )


OVERFITTING = [
    *(
        _half(name, title, EARLY, "higher", "is ahead of GRPO early on (here: the first half of training)")
        for name, title in (("d1s", "D¹S"), ("d1s-c", "D¹S-C"), ("d2s", "D²S"), ("d3s", "D³S"))
    ),
    *(
        _half(name, title, FINAL, "lower", "overfits and is overtaken by GRPO, unlike in Table 2 (here: ends below it)")
        for name, title in (("d1s", "D¹S"), ("d1s-c", "D¹S-C"), ("d2s", "D²S"))
    ),
]

MATHEMATICS = [
    claim(name, place, statement, expected, measure, MATHEMATICS)
    for name, place, statement, expected, measure in (
        (
            "lemma-1",
            "§2.2, Lemma 1",
            "A standardised set has a subset of every size from 2 with variance at least 1 (here: the best 3 of "
            "{−1, −1, 1, 1}, population variances as in eq. 44; with sample variances it is true).",
            Expectation("not lower", kind="level", null=1.0),
            exact.lemma_1,
        ),
        (
            "proposition-1",
            "§2.2, Prop. 1",
            "The norm of GRPO's gradient is at most 4γ (here: the largest 2·E|A| of groups with rewards 0 and 1).",
            Expectation("not higher", kind="level", null=4.0),
            exact.proposition_1,
        ),
        (
            "proposition-2",
            "§2.2, Prop. 2",
            "The gradient over any subset is bounded by its Var(A′) to the power 1/3 (here: bound less gradient, in γ, "
            "for {1, 1} of {−1, −1, 1, 1}; eq. 38 takes the subset's mean for 0).",
            Expectation("not lower", kind="level"),
            exact.proposition_2_any_subset,
        ),
        (
            "proposition-2-selected",
            "§2.2, Prop. 2",
            "The same for the subsets that D¹S selects (here: the least of bound less 2·E|A′|, in γ, over all groups "
            f"of {', '.join(map(str, exact.GROUP_SIZES))} with rewards 0 and 1).",
            Expectation("not lower", kind="level", margin=1e-9),
            exact.proposition_2_best_subset,
        ),
        (
            "largest-advantage",
            "App. B.2, eq. 36",
            "With rewards 0 and 1 the largest |A| of a group of G is √(G−1) (here: their quotient).",
            Expectation("equal", kind="ratio", margin=1 + 1e-9),
            exact.largest_advantage,
        ),
        (
            "table-1-average",
            "Table 1",
            "The average of GRPO + D³S on the 7B model is 34.3 (here: the mean of the row as printed; two of its "
            "entries differ from Table 2, where 34.3 is right).",
            Expectation("equal", kind="level", null=34.3, margin=0.05),
            lambda _study=None: (sum(TABLE_1_ROW) / len(TABLE_1_ROW),) * 3,
        ),
    )
]

CLAIMS = [*MAIN, *PARTS, *SPEED, *OVERFITTING, *MATHEMATICS]
