"""The claims as data: configs/claims/*.yaml, checked and joined with the papers' tables."""

from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from repro.experiments.claims.measures import Spec, check
from repro.experiments.claims.papers import Gain, Tables
from repro.paths import CLAIMS
from repro.settings.fields import Section
from repro.settings.text import read_mapping
from repro.stats.verdicts import Expectation


class Expected(Section):
    """What a paper says of one figure: the fields of repro.stats.verdicts.Expectation, the size as a number, a range or
    a gain in one of the paper's tables."""

    direction: Literal["higher", "lower", "equal", "not lower", "not higher"]
    kind: Literal["points", "ratio", "level"] = "points"
    size: float | Annotated[list[float], Field(min_length=2, max_length=2)] | Gain | None = None
    reference: float | None = None
    margin: float | None = None


TOKENS = "tokens"  # in a claim's measure: the tokens trained on, to be counted in both ways
COUNTS = {"papers": "paper_tokens", "computed": "trained_tokens"}  # {count: the ledger's column}
SUFFIX = "-computed"  # of a claim's id under the count that no paper uses


class Claim(Section):
    """What a paper claims, where, in which setting, and how it is measured here.

    count: of a claim on trained tokens, how they are counted; see `in_each_count`.

    measure: {name: parameters} of repro.experiments.claims.measures, in the unit that `expected` names. reason: why it
    cannot be tested here, in place of `measure` and `expected`. tables: where a Gain is looked up.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9.]+(-[a-z0-9.]+)*$")]
    paper: str
    place: str
    claim: str
    setting: str
    expected: Expected | None = None
    measure: Annotated[Spec, AfterValidator(check)] | None = None
    reason: str = ""
    tables: Tables = Tables()
    count: Literal["", "papers", "computed"] = ""

    @model_validator(mode="after")
    def tested_or_not(self) -> "Claim":
        if (self.measure is None) != bool(self.reason) or (self.measure is None) != (self.expected is None):
            raise ValueError("give measure and expected, or else a reason")
        return self

    @cached_property
    def expectation(self) -> Expectation | None:
        """`expected` as the rule takes it."""
        if self.expected is None:
            return None
        size = self.expected.size
        if isinstance(size, Gain):
            size = size.range(self.tables)
        fields = self.expected.model_dump(exclude={"size"})
        return Expectation(size=tuple(size) if isinstance(size, list) else size, **fields)


@cache
def load(folder: Path = CLAIMS) -> tuple[Claim, ...]:
    """Every claim of every file of `folder`, files in order of their names, papers together.

    ValueError names the claim that is wrong, or the id that is used twice."""
    claims: list[Claim] = []
    for path in sorted(folder.glob("*.yaml")):
        claims += [counted for claim in _read(path) for counted in in_each_count(claim)]
    ids = [claim.id for claim in claims]
    if repeated := {id for id in ids if ids.count(id) > 1}:
        raise ValueError(f"{folder}: two claims have the id {min(repeated)!r}")
    return tuple(sorted(claims, key=lambda claim: claim.paper))


def in_each_count(claim: Claim) -> list[Claim]:
    """The claim; if its measure names `tokens`, twice: as the papers count them, under its own id, and as computed
    (rollouts without a gradient left out, repeats once), under its id and `-computed`. See repro.protocol.ledger."""
    parts = {count: _replaced(claim.measure, column) for count, column in COUNTS.items()}
    if claim.measure is None or parts["papers"] == claim.measure:
        return [claim]
    ids = {"papers": claim.id, "computed": claim.id + SUFFIX}
    return [claim.model_copy(update={"id": ids[count], "count": count, "measure": parts[count]}) for count in COUNTS]


def _replaced(part: Any, column: str) -> Any:
    """A measure with `column` in place of `tokens`, however deep."""
    if isinstance(part, dict):
        return {key: _replaced(value, column) for key, value in part.items()}
    if isinstance(part, list):
        return [_replaced(value, column) for value in part]
    return column if part == TOKENS else part


def _read(path: Path) -> list[Claim]:
    """A file's claims; what it gives once for all of them is the claims' default."""
    content: dict[str, Any] = read_mapping(path)
    entries, defaults = content.pop("claims"), content
    claims = []
    for entry in entries:
        try:
            claims.append(Claim(**(defaults | entry)))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            message = first["msg"].removeprefix("Value error, ")
            raise ValueError(f"{path.name}: claim {entry.get('id')}: {place}{': ' if place else ''}{message}") from None
    return claims
