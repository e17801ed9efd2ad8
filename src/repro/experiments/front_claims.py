"""Do the three papers' claims hold? A dozen of configs/front_claims.yaml, judged for the same bill by the panels of
repro.experiments.prices."""

from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from repro.paths import CONFIGS
from repro.settings import Statistics
from repro.settings.fields import Section
from repro.settings.text import read_mapping
from repro.stats import compare
from repro.stats.answers import MARGIN
from repro.stats.multiplicity import holm
from repro.stats.nested import nested
from repro.stats.outcomes import paired


class Claim(Section):
    """A row of the file; its head says what the fields are."""

    paper: str
    place: str
    claim: str
    arm: str = ""
    over: str = ""
    difference: str = ""
    ratio: str = ""
    says: Literal["higher", "lower", "not lower", ""] = ""
    elsewhere: str = ""
    table: str = "prices.md"


def load() -> list[Claim]:
    return TypeAdapter(list[Claim]).validate_python(read_mapping(CONFIGS / "front_claims.yaml"))


def judged(runs: pd.DataFrame, baseline: str, statistics: Statistics) -> pd.DataFrame:
    """A row per claim and price of `repro.experiments.prices.ended` runs: paper, place, claim, says, table, price;
    effect, low and high, a difference or a `ratio`; p, of none, corrected by Holm over all rows; and verdict.

    holds, opposite   p is significant, on the side that the claim says or on the other
    holds             also a *not lower* whose interval lies above −MARGIN
    inconclusive      neither
    """
    parts = []
    for price, own in runs.groupby("price", sort=True):
        curves = compare.rows("curves", own[["run", "panel", *compare.KEYS]])
        paid = compare.priced(curves, baseline, compare.weight_of(curves, baseline, price))
        parts.append(_measured(own, paid, statistics.confidence).assign(price=price))
    table = pd.concat(parts, ignore_index=True)
    table["p"] = holm(table["p"].fillna(1.0))
    return table.assign(verdict=[_verdict(row, 1 - statistics.confidence) for row in table.itertuples()])


def _measured(runs: pd.DataFrame, paid: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """A row per claim, at one price: variances are drawn together over differences, and over ratios."""
    claims = load()
    table = pd.DataFrame([claim.model_dump(exclude={"arm", "over", "difference", "ratio"}) for claim in claims])
    table["ratio"] = [bool(claim.ratio) for claim in claims]
    for ratio, own in table[table["elsewhere"] == ""].groupby("ratio"):
        asked = [claims[row] for row in own.index]
        each = [_spent(paid, one) if ratio else paired(runs, one.difference, [one.arm], one.over)[0] for one in asked]
        fit = nested(np.stack(each))
        ends = np.column_stack([fit.estimate_A, *fit.interval(confidence)])
        table.loc[own.index, ["effect", "low", "high"]] = np.exp(ends) if ratio else ends
        table.loc[own.index, "p"] = fit.p_values()
    return table


def _spent(paid: pd.DataFrame, claim: Claim) -> np.ndarray:
    """logs_P_S: the logarithm of what `claim.arm` spends of a cost over what `claim.over` spends to be as accurate."""
    pair = [claim.over, claim.arm]
    return compare.log_factors(paid[paid["arm"].isin(pair)], pair, claim.ratio)[0]


def _verdict(row: Any, level: float) -> str:
    if row.elsewhere:
        return row.elsewhere
    if row.says == "not lower" and row.low > -MARGIN:
        return "holds"
    if row.p >= level:
        return "inconclusive"
    above = row.effect > (1 if row.ratio else 0)
    return "holds" if above == (row.says != "lower") else "opposite"
