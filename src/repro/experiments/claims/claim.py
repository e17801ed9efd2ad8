"""One claim of a paper."""

from collections.abc import Callable
from dataclasses import dataclass

from repro.experiments.claims.study import Study
from repro.experiments.claims.verdicts import Expectation

COST_AWARE_LEARNING = "Cost-Aware Learning"
D3S = "D³S"
SGPO = "sGPO"
MATHEMATICS = "mathematics"  # the setting of claims that need no runs


@dataclass(frozen=True)
class Claim:
    """What a paper says, where, of what, and how to see whether it is so here.

    measure: (value, low, high) from the study's tables, in the unit that `expected` names.
    reason: why it cannot be tested here; then there is neither `measure` nor `expected`.
    timed: the figure is made from seconds, which differ from run to run and from machine to machine.
    """

    id: str
    paper: str
    place: str
    statement: str
    setting: str
    expected: Expectation | None = None
    measure: Callable[[Study], tuple[float, float, float]] | None = None
    reason: str = ""
    timed: bool = False

    def __post_init__(self):
        if (self.measure is None) != bool(self.reason) or (self.measure is None) != (self.expected is None):
            raise ValueError(f"claim {self.id}: give measure and expected, or else a reason")
