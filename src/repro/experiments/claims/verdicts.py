"""The rule by which a measured interval is held against what a paper says. No verdict is typed anywhere.

Every figure is first turned into an effect: the value less its no-effect value, or for ratios the logarithm of value
over no-effect value (0 for differences and 1 for ratios unless the claim names another). Then, for a claim of a
direction (*higher*, *lower*):

- **same direction and size**: the interval excludes no effect on the paper's side, and the paper's size either lies in
  the interval or is within a factor SIZE_FACTOR of our estimate, both ways. A size that is a range (several models or
  benchmarks) counts where any part of it does.
- **same direction**: the interval excludes no effect on the paper's side; the paper gives no size or another one.
- **no difference seen**: the interval includes no effect. It is not shown that there is none.
- **opposite**: the interval excludes no effect on the other side.
- **cannot be tested here**: no figure, no interval (from fewer than five seeds there is none), or a stated reason such
  as a model or a benchmark.

A claim that two things are *equal* has a margin: *same direction and size* if the whole interval lies within it,
*opposite* if the interval excludes no effect and is not within it, else *no difference seen*. A claim that something is
*not lower* or *not higher*: *same direction* if the whole interval respects the bound, margin included, *opposite* if
none of it respects the bound itself, else *no difference seen*.

What this can and cannot say. Two of the papers train models of 1.5 to 8 billion parameters on competition mathematics,
for two days and more where they say it, and of the third we know the abstract alone; that is not our scale, a policy
that learns arithmetic in tens of steps. A verdict is about this scale: *opposite* here does not refute a paper there,
and *same* does not confirm it. Sizes in points of accuracy depend on the benchmark more than ratios of tokens do.
Intervals are percentile bootstraps over seeds, paired, and not corrected for the number of claims: with five seeds they
cover 80 to 85%, so that of the claims with nothing behind them about one in ten comes out as *same direction* and one
in ten as *opposite*.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

SIZE_FACTOR = 2.0

SAME_SIZE = "same direction and size"
SAME = "same direction"
NOTHING = "no difference seen"
OPPOSITE = "opposite"
UNTESTED = "cannot be tested here"
VERDICTS = (SAME_SIZE, SAME, NOTHING, OPPOSITE, UNTESTED)


@dataclass(frozen=True)
class Expectation:
    """What a paper says of one figure.

    direction: of the figure from `null`, its no-effect value. size: the paper's figure, one number or a range.
    kind: "points" (differences of shares, times 100), "ratio" (compared by logarithms) or "level" (any other number).
    margin: for claims of equality and of bounds, in the figure's own unit; for a ratio a factor above 1.
    """

    direction: Literal["higher", "lower", "equal", "not lower", "not higher"]
    size: float | tuple[float, float] | None = None
    kind: Literal["points", "ratio", "level"] = "points"
    null: float | None = None
    margin: float | None = None

    @property
    def no_effect(self) -> float:
        return self.null if self.null is not None else 1.0 if self.kind == "ratio" else 0.0

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
    """One of VERDICTS, by the rule above; an infinite bound is one that the data do not set."""
    if np.isnan([value, low, high]).any():
        return UNTESTED
    effect, low, high = (expected.effect(number) for number in (value, low, high))
    margin = expected.tolerance
    if expected.direction == "equal":
        if -margin <= low and high <= margin:
            return SAME_SIZE
        return NOTHING if low <= 0 <= high else OPPOSITE
    if expected.direction in ("lower", "not higher"):
        effect, low, high = -effect, -high, -low
    if expected.direction in ("not lower", "not higher"):
        return SAME if low >= -margin else OPPOSITE if high < 0 else NOTHING
    if low <= 0:
        return OPPOSITE if high < 0 else NOTHING
    return SAME_SIZE if _same_size(effect, low, high, expected) else SAME


def _same_size(effect: float, low: float, high: float, expected: Expectation) -> bool:
    """For effects turned so that the paper's direction is positive."""
    if expected.size is None:
        return False
    sign = -1 if expected.direction == "lower" else 1
    least, most = sorted(sign * expected.effect(end) for end in np.broadcast_to(expected.size, 2))
    overlap = least <= high and most >= low
    return bool(overlap or (least <= SIZE_FACTOR * effect and most >= effect / SIZE_FACTOR))
