"""Base class and field types of the sections of the settings."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seeds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
