"""The theory notebooks' parameters, a section each; the notebook `theory_<name>.ipynb` takes them as they are."""

from typing import Annotated

from pydantic import Field, model_validator

from repro.settings.fields import Count, Positive, Section


class SgdTheory(Section):
    """Parameters of notebooks/theory_sgd.ipynb; the paper's values were not available to us, these are ours."""

    n_points: Annotated[int, Field(ge=2)]
    dimension: Count
    norm_low: Positive
    norm_high: Positive
    cost_low: Positive
    cost_high: Positive
    n_iterations: Count
    n_trials: Annotated[int, Field(ge=2)]
    radius: Positive
    seed: int

    @model_validator(mode="after")
    def low_to_high(self):
        for name in ("norm", "cost"):
            low, high = getattr(self, f"{name}_low"), getattr(self, f"{name}_high")
            if low > high:
                raise ValueError(f"{name}_low {low} is above {name}_high {high}; swap them")
        return self


class Theory(Section):
    sgd: SgdTheory
