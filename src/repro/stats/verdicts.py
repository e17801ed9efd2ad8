"""Verdicts: a measured interval compared with what was claimed, by a stated rule. One row per claim, joined to its
words by its id.

The words of a claim stand in configs/claims and never in data, so that they can be reworded without touching a result.

**A theorem** (`at_most`, `at_least`, `within`) claims a region for the figure. The outcome is

    holds       the whole interval lies in the region
    refuted     none of it does
    not shown   it lies on both sides: with too few trials a true claim stays unshown

**An experiment of a paper** (`Expectation`, `verdict`) claims a direction, perhaps a size. The figure is first turned
into an effect: value − reference, or log(value / reference) for a ratio. The reference is the value of no effect: 0, or
1 for a ratio, unless the claim names another. For a claim of *higher* or *lower*, the verdict is

    same direction and size   the interval excludes no effect on the paper's side, and the paper's size lies in it or
                              within a factor SIZE_FACTOR of our estimate (of a range, any part may)
    same direction            the interval excludes no effect on the paper's side; no size is given, or another one
    no difference seen        the interval includes no effect, which does not show that there is none
    opposite                  the interval excludes no effect on the other side
    cannot be tested here     no figure, or no interval (none is given from fewer than five seeds), or a stated reason

*equal* has a margin: same direction and size if the whole interval lies within it, opposite if the interval excludes no
effect and is not within the margin, else no difference seen. *not lower* and *not higher*: same direction if the whole
interval respects the bound, margin included, opposite if none of it respects the bound itself, else no difference seen.

A verdict is about the scale of this study: *opposite* does not refute a paper at its own scale, nor does *same
direction* confirm it. Intervals are percentile bootstraps over seeds, not corrected for the number of claims; with five
seeds they cover 80 to 85%, so that of claims with nothing behind them about one in ten comes out as *same direction*
and one in ten as *opposite*.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import yaml

from repro.files import write_parquet
from repro.paths import CLAIMS

Interval = tuple[float, float]
OUTCOMES = ("holds", "refuted", "not shown")

SIZE_FACTOR = 2.0
SAME_SIZE = "same direction and size"
SAME = "same direction"
NOTHING = "no difference seen"
OPPOSITE = "opposite"
UNTESTED = "cannot be tested here"
VERDICTS = (SAME_SIZE, SAME, NOTHING, OPPOSITE, UNTESTED)


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
    """Claims that the figure is at most `limit`."""
    return _verdict(id, (-inf, limit), limit, value, interval, float("nan"), "interval <= expected")


def at_least(id: str, limit: float, value: float, interval: Interval) -> Verdict:
    """Claims that the figure is at least `limit`."""
    return _verdict(id, (limit, inf), limit, value, interval, float("nan"), "interval >= expected")


def within(id: str, expected: float, value: float, interval: Interval, tolerance: float) -> Verdict:
    """Claims that the figure is `expected`, to a relative `tolerance` that the whole interval must keep: a noisy run
    cannot pass."""
    least, most = sorted((expected * (1 - tolerance), expected * (1 + tolerance)))
    return _verdict(id, (least, most), expected, value, interval, tolerance, "interval within expected ± tolerance")


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


@dataclass(frozen=True)
class Expectation:
    """What a paper says of one figure.

    direction: of the figure from `reference`, its no-effect value. size: the paper's figure, one number or a range.
    kind: "points" (differences of shares, times 100), "ratio" (compared by logarithms) or "level" (any other number).
    margin: for claims of equality and of bounds, in the figure's own unit; for a ratio a factor above 1.
    """

    direction: Literal["higher", "lower", "equal", "not lower", "not higher"]
    size: float | tuple[float, float] | None = None
    kind: Literal["points", "ratio", "level"] = "points"
    reference: float | None = None
    margin: float | None = None

    @property
    def no_effect(self) -> float:
        return self.reference if self.reference is not None else 1.0 if self.kind == "ratio" else 0.0

    def effect(self, value: float) -> float:
        """The distance of `value` from no effect, on the scale on which sizes are compared."""
        if self.kind != "ratio":
            return value - self.no_effect
        with np.errstate(divide="ignore"):
            return float(np.log(value) - np.log(self.no_effect))

    @property
    def tolerance(self) -> float:
        if self.margin is None:
            return 0.0
        return float(np.log(self.margin)) if self.kind == "ratio" else self.margin


def verdict(value: float, low: float, high: float, expected: Expectation) -> str:
    """One of VERDICTS; an infinite bound is one that the data do not set."""
    if np.isnan([value, low, high]).any():
        return UNTESTED
    effect, margin = expected.effect(value), expected.tolerance
    interval = expected.effect(low), expected.effect(high)
    if expected.direction == "equal":
        return SAME_SIZE if inside(interval, -margin, margin) else OPPOSITE if outside(interval, 0, 0) else NOTHING
    if expected.direction in ("lower", "not higher"):  # turned so that the paper's direction is positive
        effect, interval = -effect, (-interval[1], -interval[0])
    if expected.direction in ("not lower", "not higher"):
        return SAME if inside(interval, -margin, inf) else OPPOSITE if outside(interval, 0, inf) else NOTHING
    if not outside(interval, -inf, 0):
        return OPPOSITE if outside(interval, 0, inf) else NOTHING
    return SAME_SIZE if _same_size(effect, interval, expected) else SAME


def inside(interval: Interval, least: float, most: float) -> bool:
    """Whether the whole interval lies in [least, most]."""
    return bool(interval[0] >= least and interval[1] <= most)


def outside(interval: Interval, least: float, most: float) -> bool:
    """Whether none of the interval lies in [least, most]."""
    return bool(interval[1] < least or interval[0] > most)


def _same_size(effect: float, interval: Interval, expected: Expectation) -> bool:
    """For effects turned so that the paper's direction is positive."""
    if expected.size is None:
        return False
    sign = -1 if expected.direction == "lower" else 1
    least, most = sorted(sign * expected.effect(end) for end in np.broadcast_to(expected.size, 2))
    return not outside(interval, least, most) or bool(least <= SIZE_FACTOR * effect and most >= effect / SIZE_FACTOR)


def _verdict(id, region: Interval, expected, value, interval: Interval, tolerance, rule) -> Verdict:
    outcome = "holds" if inside(interval, *region) else "refuted" if outside(interval, *region) else "not shown"
    return Verdict(id, outcome, float(expected), float(value), *map(float, interval), float(tolerance), rule)
