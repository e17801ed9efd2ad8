"""The claims of *Cost-Aware Learning* (arXiv 2604.28020) about training with rollouts.

Our copy of the paper lacks its formulas and with them many numbers (the values of β and of the noise, all of the 8B
model's savings); where a size is missing the claim is one of direction. Whether a sentence is about p or about p^β is
inferred from Table 1 where its symbol is missing. Sizes in points are ranges over AIME, the paper's target, and the
average of the four benchmarks, of the best checkpoint. Tokens are those of policy updates, as in the paper;
`no sampling` is training on every rollout once.
"""

from repro.experiments.claims.claim import COST_AWARE_LEARNING, Claim
from repro.experiments.claims.measures import cost, difference, least, level, proxy, ratio
from repro.experiments.claims.paper_tables import BEST_CHECKPOINT, SMOOTHED_BEST, peak_gain, span
from repro.experiments.claims.per_seed import BEST, FINAL, SILENCE_OF_SHORT, mean_over, spent
from repro.experiments.claims.verdicts import Expectation

SMALL = "Qwen2.5-Math-1.5B-Instruct, DAPO data"
SMOOTHED = "cost-aware-beta-0.3"  # the middle one of ours: the paper's main β is not in our copy; fixed beforehand
SMOOTHINGS = ("cost-aware-beta-0.1", "cost-aware-beta-0.3", "cost-aware-beta-0.5")
POINT = 1.0  # points of accuracy within which two arms are called equal

P, NONE = BEST_CHECKPOINT["GRPO"]["p"], BEST_CHECKPOINT["GRPO"]["none"]


def _claim(name: str, place: str, statement: str, setting: str = SMALL, **parts) -> Claim:
    return Claim(f"cal-{name}", COST_AWARE_LEARNING, place, statement, setting, **parts)


def _fewer_tokens(name: str, place: str, what: str, percent: float, arm: str, base: str) -> Claim:
    return _claim(
        name,
        place,
        f"{what} reaches the peak of no sampling with {percent}% fewer tokens.",
        expected=Expectation("lower", 1 - percent / 100, "ratio"),
        measure=cost(arm, base),
    )


def _points(name: str, place: str, statement: str, expected: Expectation, arm, base, statistic=BEST) -> Claim:
    return _claim(name, place, statement, expected=expected, measure=difference(statistic, arm, base))


TOKENS = [
    _fewer_tokens("tokens", "§5.4, Fig. 4", "Cost-aware sampling", 28, "cost-aware", "grpo"),
    _fewer_tokens("tokens-smoothed", "§5.4, Fig. 4", "Smoothed sampling", 32, SMOOTHED, "grpo"),
    _fewer_tokens("tokens-zvf", "§5.4, Fig. 4", "With ZVF, smoothed sampling", 13, "zvf-smoothed", "zvf"),
    _fewer_tokens("tokens-cispo", "§5.5, Fig. 5a", "With CISPO, cost-aware sampling", 31, "cispo-cost-aware", "cispo"),
    _fewer_tokens(
        "tokens-cispo-smoothed", "§5.5, Fig. 5a", "With CISPO, smoothed sampling", 34, "cispo-smoothed", "cispo"
    ),
    _claim(
        "tokens-in-all",
        "§1, abstract",
        "Cost-aware sampling cuts the work of policy optimisation: here, tokens trained on in as many steps.",
        expected=Expectation("lower", None, "ratio"),
        measure=ratio(spent("trained_tokens"), "cost-aware", "grpo"),
    ),
    _claim(
        "steps",
        "§5.4",
        "Cost-aware sampling also needs fewer training steps to the peak of no sampling.",
        expected=Expectation("lower", None, "ratio"),
        measure=cost("cost-aware", "grpo", "step"),
    ),
]

ACCURACY = [
    _points(
        "peak",
        "§5.4, Table 1",
        "Cost-aware sampling peaks higher than no sampling (5 points of AIME in the text, 4.3 in Table 1).",
        Expectation("higher", span((*peak_gain("GRPO", "p"), 5.0))),
        "cost-aware",
        "grpo",
    ),
    _points(
        "peak-smoothed",
        "§5.4, Table 1",
        "Smoothed sampling peaks higher than no sampling (5 points of AIME in the text, 4.0 in Table 1).",
        Expectation("higher", span((*peak_gain("GRPO", "smoothed"), 5.0))),
        SMOOTHED,
        "grpo",
    ),
    _points(
        "preserved",
        "§5.4, Table 1",
        "Cost-aware sampling keeps the accuracy of no sampling (the best checkpoint's; here: the last one's, with "
        f"{POINT:g} point of margin).",
        Expectation("not lower", margin=POINT),
        "cost-aware",
        "grpo",
        FINAL,
    ),
    _points(
        "peak-zvf",
        "§5.4, Table 1",
        "With ZVF, smoothed sampling peaks higher than no sampling (5 points of AIME in the text).",
        Expectation("higher", span((*peak_gain("ZVF", "smoothed"), 5.0))),
        "zvf-smoothed",
        "zvf",
    ),
    _points(
        "peak-zvf-plain",
        "Table 1",
        "With ZVF, sampling without smoothing peaks lower than no sampling.",
        Expectation("lower", peak_gain("ZVF", "p")),
        "zvf-cost-aware",
        "zvf",
    ),
    _points(
        "zvf-smoothing",
        "Table 1",
        "With ZVF, smoothing raises the peak of cost-aware sampling.",
        Expectation("higher", peak_gain("ZVF", "smoothed", "p")),
        "zvf-smoothed",
        "zvf-cost-aware",
    ),
    _points(
        "zvf",
        "§5.3, Table 1",
        "Zero-variance filtering alone peaks lower than GRPO.",
        Expectation("lower", peak_gain("ZVF", "none", base="GRPO")),
        "zvf",
        "grpo",
    ),
    _points(
        "peak-cispo",
        "§5.5, Table 8",
        "With CISPO, cost-aware sampling peaks about 4 points of AIME higher than no sampling.",
        Expectation("higher", peak_gain("CISPO", "p")),
        "cispo-cost-aware",
        "cispo",
    ),
    _points(
        "peak-cispo-smoothed",
        "§5.5, Table 8",
        "With CISPO, smoothed sampling peaks about 4 points of AIME higher than no sampling.",
        Expectation("higher", peak_gain("CISPO", "smoothed")),
        "cispo-smoothed",
        "cispo",
    ),
]

ABLATIONS = [
    _claim(
        "beta-robust",
        "App. G.6, Table 6",
        "Every value of β beats no sampling (here: the least of our three).",
        expected=Expectation("higher", span(a - b for best in SMOOTHED_BEST for a, b in zip(best, NONE, strict=True))),
        measure=least(*(difference(BEST, name, "grpo") for name in SMOOTHINGS)),
    ),
    _claim(
        "beta-zero",
        "App. G.6, Table 6",
        "Sampling without smoothing peaks higher than each smoothed variant on average over benchmarks, and as high or "
        "higher on AIME (here: than the best of our three).",
        expected=Expectation("higher", span(a - b for best in SMOOTHED_BEST for a, b in zip(P, best, strict=True))),
        measure=least(*(difference(BEST, "cost-aware", name) for name in SMOOTHINGS)),
    ),
    _points(
        "noise-small",
        "§5.5, Fig. 5b",
        f"Small noise on |A| does no harm (here: 0.25 standard deviations, within {POINT:g} point of none).",
        Expectation("equal", margin=POINT),
        "noise-0.25",
        "cost-aware",
    ),
    _points(
        "noise-large",
        "§5.5, Fig. 5b",
        "With much noise on |A| sampling falls behind no sampling (here: 2 standard deviations).",
        Expectation("lower"),
        "noise-2",
        "grpo",
    ),
    _points(
        "length-alone",
        "App. G.6, Table 6",
        "Sampling by length alone (-LEN) peaks lower than cost-aware sampling.",
        Expectation("lower", peak_gain("GRPO", "-LEN", "p")),
        "length-only",
        "cost-aware",
    ),
    _points(
        "length-baseline",
        "App. G.6, Table 6",
        "Sampling by length alone (-LEN) peaks a little lower than no sampling.",
        Expectation("lower", peak_gain("GRPO", "-LEN")),
        "length-only",
        "grpo",
    ),
    _points(
        "length-zvf",
        "App. G.6, Table 6",
        f"With ZVF, -LEN stays at the level of no sampling (−0.3 points on average; here: within {POINT:g} point).",
        Expectation("equal", margin=POINT),
        "zvf-length-only",
        "zvf",
    ),
    _claim(
        "short-silent",
        "App. G.6",
        "The authors' guess why -LEN does poorly: many shorter responses have no advantage (here: share among the "
        "shorter half of GRPO's less share among the longer half).",
        expected=Expectation("higher"),
        measure=level(SILENCE_OF_SHORT, "grpo", 100.0),
    ),
    _points(
        "recentring",
        "App. G.2",
        "Re-centring the weights only multiplies the objective by a constant; then by which number they are re-centred "
        f"(the batch's constant or its mean) changes accuracy by less than {POINT:g} point. Our reading.",
        Expectation("equal", margin=POINT),
        "cost-aware-mean",
        "cost-aware",
        FINAL,
    ),
    _claim(
        "gradient-norm",
        "App. G.2",
        "Re-centring keeps the gradient norm consistent across experiments (here: with and without sampling, mean over "
        "training, within a quarter).",
        expected=Expectation("equal", kind="ratio", margin=1.25),
        measure=ratio(mean_over("gradient_norm"), "cost-aware", "grpo"),
    ),
    _claim(
        "zvf-time",
        "App. G.5",
        "A run with ZVF takes about 72 hours where GRPO takes 48, evaluation included (here: without).",
        expected=Expectation("higher", 72 / 48, "ratio"),
        measure=ratio(spent("seconds"), "zvf", "grpo"),
        timed=True,
    ),
]

# No numbers in our copy: `high` is read as above 0.5, `low` as below that of the proxy that ignores the rollout.
# Batches are probed before any filter; with rewards 0 and 1, zero-variance filtering leaves the rollouts with A ≠ 0.
FIDELITY = [
    claim
    for arm, place, column, over, batches in (
        ("grpo", "§5.2, Fig. 3", "pearson", "the batch", ""),
        ("zvf", "App. G.8, Fig. 9 and 10", "pearson_signal", "what the filter leaves", ", before the filter"),
        ("cispo", "App. G.8, Fig. 9 and 10", "pearson", "the batch", ""),
    )
    for claim in (
        _claim(
            f"pearson-{arm}",
            place,
            f"|A| correlates strongly with the gradient norm during {arm.upper()} training (here: Pearson over {over} "
            "above 0.5).",
            "1.5B and 8B models" if arm == "grpo" else SMALL,
            expected=Expectation("higher", None, "level", null=0.5),
            measure=proxy(arm, column, "advantage"),
        ),
        _claim(
            f"chi2-{arm}",
            place,
            f"Sampling by |A| is close to sampling by the gradient norm during {arm.upper()} training: its "
            f"cost-biased χ² is low (here: below that of taking all norms as equal{batches}).",
            "1.5B and 8B models" if arm == "grpo" else SMALL,
            expected=Expectation("lower", None, "level"),
            measure=proxy(arm, "chi2", "advantage", minus="constant"),
        ),
    )
]

CLAIMS = [*TOKENS, *ACCURACY, *ABLATIONS, *FIDELITY]
