"""What the tables of sgd_regimes_validation and sgd_regimes_comparisons decide: verdicts and a conclusion."""

import numpy as np
import pandas as pd

from repro.theory import verdict

# How far the whole interval of a measured value may lie from the predicted one, relative. Eq. 8 compares bounds, which
# these problems reach up to O(ḡ/√V); the limits are exact up to O(1/√T); last iterates are the noisier.
EQ_8_TOLERANCE = 0.20
LIMIT_TOLERANCE = 0.15
TOLERANCES, LAST_TOLERANCE = {"exponent_bound": 0.10, "exponent_limit": LIMIT_TOLERANCE}, 0.20
NONE, THRESHOLD = "none", "threshold"
WHERE = {
    "negative": "negative correlation",
    NONE: "no correlation",
    THRESHOLD: "at the threshold",
    "positive": "positive correlation",
}
EXPONENTS = (
    # study, iterate, the table's column of expected k, what it tests
    ("linear", "average", "exponent_bound", "eq. 3's 2"),
    ("linear", "last", "exponent_bound", "eq. 3's 2"),
    ("least squares", "average", "exponent_limit", "the limit's 1, not eq. 3's 2"),
    ("least squares", "last", "exponent_limit", "the limit's 2"),
    ("strongly convex steps", "average", "exponent_bound", "eq. 4's 1"),
    ("strongly convex steps", "last", "exponent_bound", "eq. 4's 1"),
    ("non-convex", "average", "exponent_bound", "F.2's 2"),
)
LEVELS = (
    ("least squares", "average"),
    ("least squares", "last"),
    ("strongly convex steps", "average"),
    ("strongly convex steps", "last"),
    ("non-convex", "average"),
)
CHEAPEST = (("strongly convex steps", "average"), ("non-convex", "average"), ("strongly convex steps", "last"))


def judge(
    rates: pd.DataFrame,
    growth: pd.DataFrame,
    regimes: pd.DataFrame,
    dramatic: pd.DataFrame,
    beyond: pd.DataFrame,
) -> list[dict]:
    """The verdicts. A claim on several samplings or regimes takes the worst of them, and the hull of all intervals."""
    return [
        *_judge_rates(rates),
        *_judge_last(growth),
        *_judge_regimes(regimes),
        *_judge_extremes(dramatic, beyond),
    ]


def judge_exact(examples: pd.DataFrame, curvatures: pd.DataFrame) -> list[dict]:
    """What needs no run, so intervals have no width: two counter-examples to reading Theorem D.1 as a statement about
    correlation, and that the non-convex case is one."""
    least = float(curvatures.set_index("place").loc["start", "least"])
    found = [verdict.at_most("non-convex: least eigenvalue of ∇²f at the start", 0.0, least, (least, least))]
    for row in examples.to_dict("records"):
        value = row["variance / uniform"]
        rule = verdict.at_most if row["cheaper"] == "variance" else verdict.at_least
        claim = f"{row['cheaper']} is cheaper at correlation {row['pearson']:.2f} ({row['case']}): J(p ∝ G)/J(uniform)"
        found.append(rule(claim, 1.0, value, (value, value)))
    return found


def _judge_rates(rates: pd.DataFrame) -> list[dict]:
    average = rates[rates["iterate"] == "average"]
    claim = "no bound is broken, four cases: largest mean error / bound"
    found = [verdict.at_most(claim, 1.0, *_worst(average, "tightness"))]
    attained = average[average["study"] == "linear"]
    claim = "linear: the bound is attained, mean error / (D√(V/T)) at the longest horizon"
    found.append(verdict.within(claim, 1.0, *_worst(attained, "level", 1.0), LIMIT_TOLERANCE))
    for study, iterate, column, meaning in EXPONENTS:
        row = _rows(rates, study, iterate).query("sampling == 'optimal'").iloc[0]
        claim = f"{study}, {iterate}: k of cost ∝ ε^−k is {meaning}"
        tolerance = LAST_TOLERANCE if iterate == "last" else TOLERANCES[column]
        found.append(verdict.within(claim, row[column], *_estimate(row, "exponent"), tolerance))
    for study, iterate in LEVELS:
        claim = f"{study}, {iterate}: mean error / limit at the longest horizon"
        worst = _worst(_rows(rates, study, iterate), "level", 1.0)
        tolerance = LAST_TOLERANCE if iterate == "last" else LIMIT_TOLERANCE
        found.append(verdict.within(claim, 1.0, *worst, tolerance))
    for study, iterate in CHEAPEST:
        rivals = _rows(rates, study, iterate).query("sampling != 'optimal'")
        claim = f"{study}, {iterate}: optimal is the cheapest of three, cheapest rival / optimal"
        cheapest = rivals.loc[rivals["ratio"].idxmin()]
        interval = rivals["ratio_low"].min(), cheapest["ratio_high"]
        found.append(verdict.at_least(claim, 1.0, cheapest["ratio"], interval))
        for row in rivals.to_dict("records") if iterate == "average" else ():
            claim = f"{study}: cost, {row['sampling']} / optimal, is that of eq. 8"
            found.append(verdict.within(claim, row["ratio_eq_8"], *_estimate(row, "ratio"), EQ_8_TOLERANCE))
    return found


def _judge_last(growth: pd.DataFrame) -> list[dict]:
    """F.3's wording, taken at its word: the last iterate is a factor of log T worse than the average."""
    end = growth.groupby("study").last()
    horizons = growth.loc[growth["study"] == "least squares", "iteration"]
    factor = np.log(horizons.max()) / np.log(horizons.min())
    worse = _estimate(end.loc["least squares"], "growth")
    better = _estimate(end.loc["linear"], "ratio")
    span = f"T = {horizons.min()} to {horizons.max()}"
    claim = f"F.3 as worded, least squares: last / average grows like log T, {span}"
    found = [verdict.at_most(claim, factor, *worse)]
    return [*found, verdict.at_least("F.3 as worded, linear: last / average at the longest horizon", 1.0, *better)]


def _judge_regimes(regimes: pd.DataFrame) -> list[dict]:
    found = []
    for row in regimes.to_dict("records"):
        where = WHERE[row["regime"]]
        if row["pair"] == "variance / uniform":
            claim = f"Theorem D.1, {where}: cost, variance / uniform"
            if row["regime"] == THRESHOLD:
                found.append(verdict.within(f"{claim}, is 1", 1.0, *_estimate(row, "linear"), EQ_8_TOLERANCE))
            else:
                rule = verdict.at_most if row["eq_8"] < 1 else verdict.at_least
                found.append(rule(claim, 1.0, *_estimate(row, "linear")))
        else:
            claim = f"linear, {where}: cost, {row['pair']}, is that of eq. 8"
            found.append(verdict.within(claim, row["eq_8"], *_estimate(row, "linear"), EQ_8_TOLERANCE))
    rivals = regimes[regimes["pair"] != "variance / uniform"]
    columns = ["squares", "squares_low", "squares_high"]
    relative = rivals[columns].div(rivals["limit"], axis=0)
    claim = "least squares, all correlations: cost relative to optimal / its limit"
    return [*found, verdict.within(claim, 1.0, *_worst(relative, "squares", 1.0), EQ_8_TOLERANCE)]


def _judge_extremes(dramatic: pd.DataFrame, beyond: pd.DataFrame) -> list[dict]:
    found = []
    for row in dramatic[dramatic["n"] == dramatic["n"].max()].to_dict("records"):
        claim = f"c = i², G = 1/i, n = {row['n']}: cost, {row['pair']}, is that of eq. 8"
        found.append(verdict.within(claim, row["eq_8"], *_estimate(row, "linear"), EQ_8_TOLERANCE))
    for row in beyond.to_dict("records"):
        claim = f"Theorem 4.1 taken as a claim on cost, strongly convex steps: {row['case']}"
        found.append(verdict.at_most(claim, 1.0, *_estimate(row, "measured")))
    return found


def conclude(
    rates: pd.DataFrame, regimes: pd.DataFrame, dramatic: pd.DataFrame, beyond: pd.DataFrame, verdicts: list[dict]
) -> str:
    """What the figures and the tables show, in a few sentences of Markdown made from them."""
    average = rates[(rates["iterate"] == "average") & (rates["sampling"] == "optimal")].set_index("study")
    linear, squares = average.loc["linear"], average.loc["least squares"]
    ratios = regimes.pivot(index="regime", columns="pair", values="linear")
    uniform, variance = ratios["uniform / optimal"], ratios["variance / optimal"]
    end = dramatic[dramatic["n"] == dramatic["n"].max()].set_index("pair")["linear"]
    aware, trap = beyond["measured"]
    return (
        f"Where gradients are as large as their bounds, cost grows as ε^−{linear.exponent:.2f} (equation 3: 2) and the "
        f"error is {linear.level:.0%} of its bound; on least squares cost grows as ε^−{squares.exponent:.2f} and the "
        f"error is at most {squares.tightness:.1%} of the bound. Uniform sampling costs **{uniform['negative']:.1f}×** "
        f"optimal sampling when costs fall with norms, **{uniform[NONE]:.1f}×** without correlation and "
        f"**{uniform['positive']:.1f}×** when they rise; variance-optimal sampling costs {variance.min():.2f} to "
        f"{variance.max():.2f}× in all four regimes: what it loses depends on the spread of costs, not on correlation. "
        f"With c = i², G = 1/i and n = {dramatic['n'].max()} the two cost **{end['uniform / optimal']:.0f}×** and "
        f"**{end['variance / optimal']:.1f}×**. The theorem minimises a bound, not cost: p* costs {aware:.2f}× what "
        f"sampling by the noise at the minimum does, and **{trap:.1f}×** uniform sampling where large gradients carry "
        f"no noise. {verdict.tally(verdicts)}"
    )


def _rows(rates: pd.DataFrame, study: str, iterate: str) -> pd.DataFrame:
    return rates[(rates["study"] == study) & (rates["iterate"] == iterate)]


def _estimate(row, name: str) -> tuple[float, tuple[float, float]]:
    return row[name], (row[f"{name}_low"], row[f"{name}_high"])


def _worst(rows: pd.DataFrame, name: str, target: float | None = None) -> tuple[float, tuple[float, float]]:
    """The value farthest from `target` (default: the largest), with the hull of all intervals."""
    values = rows[name].to_numpy()
    place = values.argmax() if target is None else np.abs(values - target).argmax()
    low = rows[f"{name}_low"].iloc[place] if target is None else rows[f"{name}_low"].min()
    return values[place], (low, rows[f"{name}_high"].max())
