"""The papers' own scale: every value of their tables of hyper-parameters, and what verl is told by it.

`SCALES` holds one `PaperScale` for each column of each table. Each value says whether the paper gives it, and where, or
that it is ours, and why. `overrides` turns a scale and an arm of params.yaml into Hydra overrides on top of verl's own
defaults (configs/verl); `compose` lets Hydra put both together and verl check the result.
"""

from repro.paper_scale.scales import SCALES, find
from repro.paper_scale.values import PaperScale, Value

__all__ = ["SCALES", "PaperScale", "Value", "find"]
