"""What sGPO decides from a success rate: the class of a query, whether it is trained on, and its group size.

The one form of the rule for every analysis. The plan itself, with its epochs and variants, is repro.methods.plans.sgpo.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np

from repro.methods.group_sizes.posterior import fit_population, posterior
from repro.methods.group_sizes.rule import rule_size
from repro.methods.plans.sgpo import sgpo

CLASSES = TRIVIAL, LEARNABLE, UNSOLVABLE = "trivial", "learnable", "unsolvable"


def classes(rate_Q: np.ndarray, margin: float = 0.0) -> np.ndarray:
    """Indices into CLASSES: trivial from 1 − margin up, unsolvable from margin down.

    sGPO classifies p̂ with margin 0. A margin is for an estimate of the true p, which is never exactly 0 or 1.
    """
    rate_Q = np.asarray(rate_Q)
    return np.select([rate_Q >= 1 - margin, rate_Q <= margin], [0, 2], 1)


def fitted_population(successes_Q: np.ndarray, samples: int) -> tuple[float, float]:
    """(α, β) of the profile's success rates (`fit_population`); uniform, (1, 1), where one sample of each query says
    nothing of the spread."""
    return fit_population(successes_Q, samples) if samples > 1 else (1.0, 1.0)


@dataclass(frozen=True)
class Rule:
    """Groups of clip(⌈1/p̂⌉, smallest, largest) rollouts, under allocation "shrunken" with the posterior mean in place
    of p̂; p̂ = 1 is dropped, a share of p̂ = 0 is kept."""

    smallest: int
    largest: int
    unsolvable_share: float
    allocation: str = "inverse"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Rule":
        """With the parameters that an arm gives to its plan `sgpo`, and the plan's defaults for the others."""
        known = parameters(sgpo, given)
        return cls(known["smallest"], known["largest"], known["unsolvable_share"], known["allocation"])

    def sizes(self, rate_Q: np.ndarray, samples: int | None = None) -> np.ndarray:
        """Group size of every query, trivial ones included, by rates from `samples` of each; None: the rates are known,
        not estimated, so nothing is shrunken. A rate of 0 gets `largest`."""
        if self.allocation == "shrunken" and samples is not None:
            successes_Q = np.rint(np.asarray(rate_Q) * samples)
            a_Q, b_Q = posterior(successes_Q, samples, *fitted_population(successes_Q, samples))
            rate_Q = a_Q / (a_Q + b_Q)
        return rule_size(rate_Q, self.smallest, self.largest)

    def kept(self, rate_Q: np.ndarray) -> np.ndarray:
        """The probability with which an epoch trains on a query."""
        return np.array([0.0, 1.0, self.unsolvable_share])[classes(rate_Q)]


def parameters(plan: Callable, given: Mapping[str, Any]) -> dict[str, Any]:
    """A plan's own parameters: `given`, and the defaults for the others."""
    own = [each for each in signature(plan).parameters.values() if each.kind is each.KEYWORD_ONLY]
    return {each.name: each.default for each in own} | dict(given)
