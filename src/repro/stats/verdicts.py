"""Verdicts on claims: one row per claim, decided from an interval by a stated rule, joined to its words by its id.

The words of a claim stand in configs/claims/*.yaml and never in data, so that they can be mended without touching a
result. A verdict's `outcome` is one of

    holds       the whole interval lies where the claim says
    refuted     the whole interval lies where the claim cannot hold
    not shown   the interval lies on both sides: with too few trials a true claim stays unshown
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import pandas as pd
import yaml

from repro.files import write_parquet
from repro.paths import CLAIMS

Interval = tuple[float, float]
OUTCOMES = ("holds", "refuted", "not shown")


@dataclass(frozen=True)
class Verdict:
    """`expected`: the bound or the value claimed. `tolerance`: relative; NaN for an inequality. `low`, `high`: the 95%
    interval of `value`; both equal to it where it is exact, or the largest of all that was drawn."""

    id: str
    outcome: str
    expected: float
    value: float
    low: float
    high: float
    tolerance: float
    rule: str


def at_most(id: str, limit: float, value: float, interval: Interval) -> Verdict:
    """Holds when the whole interval lies at or below `limit`; refuted when none of it does."""
    low, high = interval
    return _verdict(id, high <= limit, low > limit, limit, value, interval, float("nan"), "interval <= expected")


def at_least(id: str, limit: float, value: float, interval: Interval) -> Verdict:
    """Holds when the whole interval lies at or above `limit`; refuted when none of it does."""
    low, high = interval
    return _verdict(id, low >= limit, high < limit, limit, value, interval, float("nan"), "interval >= expected")


def within(id: str, expected: float, value: float, interval: Interval, tolerance: float) -> Verdict:
    """Holds when the whole interval lies within a relative `tolerance` of `expected`, so that a noisy run cannot pass;
    refuted when none of it does."""
    low, high = interval
    least, most = expected * (1 - tolerance), expected * (1 + tolerance)
    outside = high < min(least, most) or low > max(least, most)
    rule = "interval within expected ± tolerance"
    return _verdict(id, low >= least and high <= most, outside, expected, value, interval, tolerance, rule)


def exact(value: float) -> tuple[float, Interval]:
    """(value, interval) of a figure without sampling error."""
    return float(value), (float(value), float(value))


def frame(verdicts: Iterable[Verdict]) -> pd.DataFrame:
    """A row per verdict, its fields as columns; ValueError if two share an id."""
    table = pd.DataFrame([asdict(verdict) for verdict in verdicts])
    if repeated := list(table["id"][table["id"].duplicated()]):
        raise ValueError(f"verdicts: two claims have the id {repeated[0]!r}; give each its own")
    return table


def save(folder: str | Path, tables: dict[str, pd.DataFrame], verdicts: Iterable[Verdict]) -> None:
    """Each table as <name>.parquet and the verdicts as verdicts.parquet into `folder`, each whole or not at all."""
    for name, table in {**tables, "verdicts": frame(verdicts)}.items():
        write_parquet(table, Path(folder) / f"{name}.parquet")


@cache
def words(group: str) -> dict[str, str]:
    """{id: sentence} of the claims of one theory notebook, from configs/claims/theory/<group>.yaml."""
    return yaml.safe_load((CLAIMS / "theory" / f"{group}.yaml").read_text())


def with_words(verdicts: pd.DataFrame, group: str) -> pd.DataFrame:
    """`verdicts` with the column `claim` in front, its sentence; KeyError names an id that has none."""
    return verdicts.assign(claim=[words(group)[id] for id in verdicts["id"]])[["claim", *verdicts.columns]]


def _verdict(id, holds, refuted, expected, value, interval, tolerance, rule) -> Verdict:
    outcome = "holds" if holds else "refuted" if refuted else "not shown"
    return Verdict(id, outcome, float(expected), float(value), *map(float, interval), float(tolerance), rule)
