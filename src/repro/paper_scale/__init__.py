"""The papers' own scale: every value of their tables of hyper-parameters, and verl's configuration for it.

configs/papers/scales holds the tables, one `PaperScale` for each column. Each value records where the paper states it,
or that we chose it, and why. `overrides` turns a scale and an arm of params.yaml into Hydra overrides on top of verl's
own defaults (configs/verl); `compose` lets Hydra put both together and verl check the result.
"""

from repro.paper_scale.scales import SCALES, find
from repro.paper_scale.schema import PaperScale, Value

__all__ = ["SCALES", "PaperScale", "Value", "find"]
