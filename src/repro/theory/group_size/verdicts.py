"""The verdicts on sGPO's group size: by which reading the rule is right, and what it saves."""

import numpy as np
import pandas as pd
from scipy.special import ndtri

from repro.methods.group_sizes.rule import Array
from repro.theory.group_size.closed_forms import mean_advantage, net_of_price, one_success, over_sizes
from repro.theory.group_size.rule import LARGEST, RIGHT
from repro.theory.group_size.validation import saving
from repro.theory.verdict import at_least, at_most, within

PRICE = 0.005  # informative groups per rollout at which the small-p form of the best size is checked
PAPER_SAVING = (2.5, 3.1)  # times less training compute, profiling included
NAMES = {"informative": "informative group", "advantage": "absolute advantage", "greatest": "greatest advantage"}
TOLERANCE = 0.05  # on savings; the simulated interval must lie within it whole


def judge_simulations(groups: pd.DataFrame, profiles: pd.DataFrame) -> list[dict]:
    """`simulate_groups` and `simulate_profiles` against their exact values: the largest deviation in standard errors.

    The limit is what chance exceeds in one of a thousand such tables.
    """
    found = []
    for what, table in (("groups", groups), ("profiles", profiles)):
        deviation = ((table["simulated"] - table["exact"]).abs() / table["error"]).max()
        claim = f"simulated {what} agree with the closed forms: largest of {len(table)} deviations (standard errors)"
        found.append(_computed(at_most, claim, ndtri(1 - 0.001 / (2 * len(table))), deviation))
    return found


def judge_rule(found: pd.DataFrame) -> list[dict]:
    """`against_rule`'s table against each reading of "the most advantage per rollout". Computed, not simulated."""
    least = found.groupby("criterion")["share"].min()
    low = found[found["p"] < 0.5]
    least_low = low.groupby("criterion")["share"].min()
    p_P = np.unique(found["p"])
    largest = found.loc[found["criterion"] == "informative", "best_size"].max()
    touching = 1 / (np.e * PRICE)
    rule = "⌈1/p⌉ maximises the {} per rollout: least share of the best, p {}"
    return [
        _computed(
            at_least, rule.format("mean absolute advantage", "from 0.01 to 0.99"), RIGHT, least["mean_advantage"]
        ),
        _computed(
            at_least, "mean absolute advantage rises with G at every p: least rise, G to 64", 0.0, _least_rise(p_P)
        ),
        _computed(
            at_least, rule.format("number of informative groups", "from 0.01 to 0.99"), RIGHT, least["informative"]
        ),
        _computed(at_most, "informative groups per rollout are most at G = 2 whatever p: largest best G", 2, largest),
        _computed(at_least, rule.format("greatest advantage", "below ½"), RIGHT, least_low["best_advantage"]),
        _computed(at_most, "one success alone is likeliest at ⌊1/p⌋: largest shortfall", 1e-9, _shortfall(p_P)),
        _computed(
            within, f"at price λ = {PRICE:g} and p = eλ the best G is 1/p", touching, _best_priced(), tolerance=0.02
        ),
    ]


def judge_savings(compared: pd.DataFrame, trials: pd.DataFrame, seed: int) -> list[dict]:
    """`simulate_plans`' trials against `compare`'s predictions and against the paper's claim."""
    measured = {gain: saving(trials, gain, "sgpo", "uniform", seed) for gain in NAMES}
    found = []
    for gain, name in NAMES.items():
        predicted = compared.loc["sgpo", "saving_rate" if gain == "informative" else f"saving_{gain}"]
        found.append(within(f"sGPO's saving per {name} is as predicted", predicted, *measured[gain], TOLERANCE))
    low, high = PAPER_SAVING
    for gain, name in NAMES.items():
        found.append(at_least(f"sGPO saves {low:g} to {high:g} times (paper): per {name}", low, *measured[gain]))
    for claim, plan, rival in (
        ("sGPO's filter saves over uniform groups", "filter", "uniform"),
        ("⌈1/p̂⌉ saves over equal sizes, same queries and rollouts", "sgpo", "equal"),
        ("the best plan for the profile saves over sGPO", "best", "sgpo"),
    ):
        for gain, name in NAMES.items():
            found.append(at_least(f"{claim}: per {name}", 1.0, *saving(trials, gain, plan, rival, seed)))
    return found


def conclude(found: pd.DataFrame, compared: pd.DataFrame, against: pd.DataFrame, verdicts: list[dict]) -> str:
    """What the tables show, in a paragraph of Markdown made from them.

    `found` is `against_rule`'s table, `compared` `compare`'s and `against` `by_baseline`'s.
    """
    sgpo, strict, filtered, equal = (compared.loc[name] for name in ("sgpo", "strict", "filter", "equal"))
    share = found[found["p"] < 0.5].groupby("criterion")["share"].mean()
    held = sum(row["holds"] for row in verdicts)
    low, _ = PAPER_SAVING
    enough = against.index[against["saving_rate"] >= low]
    reach = f"of {enough.min()} or more" if len(enough) else f"larger than the {against.index.max()} tried"
    return (
        f"Where p is below ½, ⌈1/p⌉ attains {share['best_advantage']:.1%} of the best value of the greatest advantage "
        f"per rollout and {share['one_success']:.0%} of that of the chance of exactly one success, but "
        f"{share['mean_advantage']:.0%} for the mean |A| per rollout, which asks for the largest group, "
        f"{share['informative']:.0%} for informative groups per rollout, which ask for the smallest, and "
        f"{share['net_of_price']:.0%} for what informative groups bring at the "
        "price of a common budget (means over p). With difficulty as assumed here, and the profile charged, sGPO saves "
        f"**{sgpo['saving_pass']:.2f}×** per pass over the queries, but **{sgpo['saving_rate']:.2f}×** per informative "
        f"group, **{sgpo['saving_advantage']:.2f}×** per |A| and **{sgpo['saving_greatest']:.2f}×** per greatest "
        f"advantage ({_three(strict)} where p̂ = 0 is left out altogether); its filter alone {_three(filtered)}. To "
        f"reach {low:g}× per informative group takes uniform groups {reach}. Of "
        f"the informative groups that the same profile and rollouts can bring, ⌈1/p̂⌉ finds {sgpo['of_best']:.0%}, "
        f"equal sizes for the same queries {equal['of_best']:.0%}. "
        f"{held} of {len(verdicts)} claims hold; the table of verdicts names the others."
    )


def _three(plan: pd.Series) -> str:
    rate, advantage, greatest = plan[["saving_rate", "saving_advantage", "saving_greatest"]]
    return f"{rate:.2f}×, {advantage:.2f}× and {greatest:.2f}×"


def _computed(rule, claim: str, expected: float, measured: float, **options) -> dict:
    """A number without sampling error is its own interval."""
    return rule(claim, float(expected), float(measured), (float(measured), float(measured)), **options)


def _least_rise(p_P: Array) -> float:
    return float(np.diff(over_sizes(mean_advantage, p_P, range(1, 65)), axis=1).min())


def _shortfall(p_P: Array) -> float:
    """Over p ≤ ½: by what share P(S = 1) at ⌊1/p⌋ falls short of its largest value over G."""
    p_P = p_P[p_P <= 0.5]
    best_P = over_sizes(one_success, p_P, range(2, LARGEST + 1)).max(axis=1)
    floor_P = np.floor(1 / p_P + 1e-9)
    return float(max(1 - one_success(p, int(G)) / best for p, G, best in zip(p_P, floor_P, best_P, strict=True)))


def _best_priced() -> int:
    sizes_G = np.arange(2, 3 * LARGEST)
    net_G = [net_of_price(np.e * PRICE, int(size), price=PRICE) for size in sizes_G]
    return int(sizes_G[np.argmax(net_G)])
