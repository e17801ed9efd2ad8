"""What a saved run holds: the types of its log and of its ledger, to check a file that tells of them."""

from dataclasses import fields
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, create_model

from repro.protocol.ledger import Ledger
from repro.protocol.log import Log
from repro.stored import Amount, Share


def _whole(value: float) -> float:
    if value < 0 or not float(value).is_integer():
        raise ValueError("it should be a whole number from 0")
    return value


Whole = Annotated[float, AfterValidator(_whole)]  # verl's numbers are NumPy's, which JSON gets as 3.0
TOTALS: dict[str, Any] = {field.name: (Amount, 0) for field in fields(Ledger)}


class _Row(BaseModel):
    """A row of any table of the log: what a row names it has, and everything else is a number, or NaN."""

    model_config = ConfigDict(strict=True, extra="allow")
    __pydantic_extra__: dict[str, float]

    seed: Whole
    step: Whole = 0
    samples: Whole = 0
    query: Whole | str = 0
    accuracy: Share = 0
    skipped: bool = False
    diverged: bool = False
    family: str = ""
    prompt: str = ""
    response: str = ""
    phase: str = ""
    source: str = ""


def _of_one_table(rows: list[_Row]) -> list[_Row]:
    if len({frozenset(row.model_fields_set) for row in rows}) > 1:
        raise ValueError("its rows should have the same columns")
    return rows


def _in_order(rows: list[_Row]) -> list[_Row]:
    if [row.step for row in rows] != [rows[0].step + number for number in range(len(rows))]:
        raise ValueError("its steps should follow one another")
    return rows


ROWS = Annotated[list[create_model("Row", __base__=_Row, **TOTALS)], AfterValidator(_of_one_table)]
STEPS = Annotated[ROWS, AfterValidator(_in_order)]
LOG = create_model(
    "LOG",
    __config__=ConfigDict(strict=True, extra="forbid"),
    **{field.name: (STEPS if field.name == "steps" else ROWS, []) for field in fields(Log)},
)
LEDGER = create_model(
    "LEDGER", __config__=ConfigDict(strict=True), **{name: (kind, ...) for name, (kind, _) in TOTALS.items()}
)
