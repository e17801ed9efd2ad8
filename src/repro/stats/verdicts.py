"""Verdicts: a measured interval compared with what was claimed, by one rule. One row per claim, joined to its words by
its id.

The words of a claim are in configs/claims and never in data, so that they can be reworded without touching a result.

**The rule.** A claim names a region in which the figure should lie, from `least` to `most` (`Region`):

    in       the whole interval lies in the region
    out      none of it does
    between  part of it does: with too little data a true claim stays undecided

A tolerance or margin widens the region, so it protects a claim from *out* exactly as it lets it be *in*: a difference
within the margin never speaks against a claim of equality.

**A theorem** (`at_most`, `at_least`, `within`) *holds*, is *refuted*, or is *not shown*. **A saving that rests on
our assumptions** (`reaches`), such as a population of queries, is *reached*, *not reached* or *not shown* under
them: none of our assumptions refutes a paper.

**An experiment of a paper** (`Expectation`, `verdict`) claims a direction, perhaps a size. The figure is first turned
into an effect: value − reference, or log(value / reference) for a ratio. The reference is the value of no effect: 0, or
1 for a ratio, unless the claim names another. The region of the effect, with margin m:

    higher      above 0      not lower   at least −m     equal   from −m to m
    lower       below 0      not higher  at most m

Where an interval touches 0, *higher* and *lower* stay between. The verdict is

    same direction and size   in; for higher and lower also: the paper's size lies in the interval or within a factor
                              SIZE_FACTOR of our estimate (of a range, any part may). Equal has no other size
    same direction            in; no size is given, or another one
    no difference seen        between, which does not show that there is none
    opposite                  out
    not measured here         it names an arm that the study has no runs of, or did not probe
    cannot be tested here     no figure, or no interval (none is given from fewer than three seeds), or a stated reason

A verdict is about the scale of this study: *opposite* does not refute a paper at its own scale, nor does *same
direction* confirm it. Intervals over seeds are Student's (repro.stats.intervals), not corrected for the number of
claims: of claims of a direction with nothing behind them about one in forty comes out as *same direction* and one in
forty as *opposite*.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from repro.files import write_parquet
from repro.paths import CLAIMS
from repro.settings.text import read_mapping

Interval = tuple[float, float]
Place = Literal["in", "out", "between"]
OF_THEOREMS: dict[Place, str] = {"in": "holds", "out": "refuted", "between": "not shown"}
AS_ASSUMED: dict[Place, str] = {"in": "reached", "out": "not reached", "between": "not shown"}
SENTENCES = TypeAdapter(dict[str, str])
OUTCOMES = tuple(dict.fromkeys([*OF_THEOREMS.values(), *AS_ASSUMED.values()]))

SIZE_FACTOR = 2.0
SAME_SIZE = "same direction and size"
SAME = "same direction"
NOTHING = "no difference seen"
OPPOSITE = "opposite"
UNMEASURED = "not measured here"
UNTESTED = "cannot be tested here"
VERDICTS = (SAME_SIZE, SAME, NOTHING, OPPOSITE, UNMEASURED, UNTESTED)


@dataclass(frozen=True)
class Region:
    """Where a figure should lie by a claim, ends included; `open`: a figure on an end is neither in nor out."""

    least: float = -inf
    most: float = inf
    open: bool = False

    def place(self, interval: Interval) -> Place:
        low, high = interval
        if high < self.least or low > self.most:
            return "out"
        touches = self.open and (low <= self.least > -inf or high >= self.most < inf)
        return "in" if low >= self.least and high <= self.most and not touches else "between"


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
    return _verdict(id, Region(most=limit), limit, value, interval, "interval <= expected")


def at_least(id: str, limit: float, value: float, interval: Interval) -> Verdict:
    """Claims that the figure is at least `limit`."""
    return _verdict(id, Region(least=limit), limit, value, interval, "interval >= expected")


def within(id: str, expected: float, value: float, interval: Interval, tolerance: float) -> Verdict:
    """Claims that the figure is `expected`, to a relative `tolerance` that the whole interval must keep: a noisy run
    cannot pass."""
    region = Region(*sorted((expected * (1 - tolerance), expected * (1 + tolerance))))
    return _verdict(id, region, expected, value, interval, "interval within expected ± tolerance", tolerance)


def reaches(id: str, target: float, value: float, interval: Interval) -> Verdict:
    """Says whether the figure reaches `target` under our assumptions, which its words name."""
    rule = "interval >= expected, as assumed"
    return _verdict(id, Region(least=target), target, value, interval, rule, outcomes=AS_ASSUMED)


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
    return SENTENCES.validate_python(read_mapping(CLAIMS / "theory" / f"{group}.yaml"))


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

    def __post_init__(self):
        if self.margin is not None and self.direction in ("higher", "lower"):
            raise ValueError(f"a claim of {self.direction!r} has no margin; say 'not lower', 'not higher' or 'equal'")

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
    def region(self) -> Region:
        """Of the effect."""
        margin = 0.0 if self.margin is None else float(np.log(self.margin)) if self.kind == "ratio" else self.margin
        return {
            "higher": Region(least=0.0, open=True),
            "lower": Region(most=0.0, open=True),
            "not lower": Region(least=-margin),
            "not higher": Region(most=margin),
            "equal": Region(-margin, margin),
        }[self.direction]


def verdict(value: float, low: float, high: float, expected: Expectation) -> str:
    """One of VERDICTS; an infinite bound is one that the data do not set."""
    if np.isnan([value, low, high]).any():
        return UNTESTED
    interval = expected.effect(low), expected.effect(high)
    place = expected.region.place(interval)
    if place != "in":
        return OPPOSITE if place == "out" else NOTHING
    if expected.direction == "equal":
        return SAME_SIZE
    return SAME_SIZE if _same_size(expected.effect(value), interval, expected) else SAME


def _same_size(effect: float, interval: Interval, expected: Expectation) -> bool:
    """Of an effect in the direction of the claim, higher or lower."""
    if expected.size is None or expected.direction not in ("higher", "lower"):
        return False
    least, most = sorted(expected.effect(end) for end in np.broadcast_to(expected.size, 2))
    if Region(least, most).place(interval) != "out":
        return True
    if expected.direction == "lower":  # turned so that the paper's direction is positive
        effect, least, most = -effect, -most, -least
    return bool(least <= SIZE_FACTOR * effect and most >= effect / SIZE_FACTOR)


def _verdict(
    id: str,
    region: Region,
    expected: float,
    value: float,
    interval: Interval,
    rule: str,
    tolerance: float = float("nan"),
    outcomes: dict[Place, str] = OF_THEOREMS,
) -> Verdict:
    low, high = map(float, interval)
    return Verdict(id, outcomes[region.place((low, high))], float(expected), float(value), low, high, tolerance, rule)
