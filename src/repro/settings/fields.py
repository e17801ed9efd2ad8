"""Base class and field types of the sections of the settings.

Every number has bounds: what lies beyond them is a slip, cannot be allocated, or is no seed to numpy.
"""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

LARGEST = 10**6  # of any count
SMALLEST = 1e-15  # of any number above 0; its inverse is the largest of any
NAME = r"^[a-z][a-z0-9_-]*$"  # to YAML 1.2, by which DVC reads the file, 1e5 and 0o17 are numbers
NAMES = "a name is at most 64 lower-case letters, digits, hyphens and underscores, and begins with a letter"


def _distinct(values: list[Any]) -> list[Any]:
    if len(set(values)) < len(values):
        twice = next(value for value in values if values.count(value) > 1)
        raise ValueError(f"{twice!r} is there twice; remove one")
    return values


Share = Annotated[float, Field(ge=0, le=1)]
Part = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1, le=LARGEST)]
CountFrom0 = Annotated[int, Field(ge=0, le=LARGEST)]
GroupSize = Annotated[int, Field(ge=2, le=4096)]
Processes = Annotated[int, Field(ge=1, le=256)]  # or threads
Name = Annotated[str, Field(pattern=NAME, max_length=64)]  # becomes a stage, a file and a part of a command
Title = Annotated[str, Field(pattern=r"^\S[^\x00-\x1f\x7f]*$", max_length=80)]  # one line of a table or figure
Source = Annotated[str, Field(pattern=r"^\S[^\x00-\x1f\x7f]*$", max_length=1000)]  # a folder, or a model's name
Positive = Annotated[float, Field(ge=SMALLEST, le=1 / SMALLEST)]
NonNegative = Annotated[float, Field(ge=0, le=1 / SMALLEST)]
Exponent = Annotated[float, Field(gt=0, le=20)]  # of e, or what is one in effect
COLDEST = 0.01  # the least temperature; verl's 0, greedy, is told as this
Temperature = Annotated[float, Field(ge=COLDEST, le=100)]
LearningRate = Annotated[float, Field(gt=0, le=10)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Distinct = AfterValidator(_distinct)
Seeds = Annotated[list[Seed], Distinct, Field(min_length=1)]
ArmNames = Annotated[list[str], Distinct]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Without what is as by default."""
        default = {name: of.get_default(call_default_factory=True) for name, of in type(self).model_fields.items()}
        return ((name, value) for name, value in super().__repr_args__() if value != default[name])
