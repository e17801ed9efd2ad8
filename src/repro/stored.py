"""JSON that the project wrote and trusts later: the values are checked where it is read, not only that they are there.

Apart from repro.files, which is code of every stage: a change there would make all that is trained out of date.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model

from repro.errors import brief
from repro.files import Unreadable, read_json

Count = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=1)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
STRICT = ConfigDict(strict=True)  # "3", true and 3.0 are no 3


def read_stored(path: Path, remedy: str, kind: Any) -> Any:
    """The content of a JSON file, as it stands there, if it is of `kind`: {key: type of its value}, other keys being
    free, or a type of pydantic's. Unreadable, with the place in the file and the cure `remedy`, a clause, if not."""
    keys = list(kind) if isinstance(kind, Mapping) else ()
    return checked(read_json(path, remedy, keys), path, remedy, kind)


def checked(content: Any, path: Path, remedy: str, kind: Any) -> Any:
    """`content`, which was read from `path`, if it is of `kind`; Unreadable if it is not, as for `read_stored`."""
    try:
        _adapter(kind).validate_python(content)
    except ValidationError as error:
        raise Unreadable(f"{path} cannot be read ({_why(error, content)}): {remedy}") from error
    return content


def is_of(kind: Any, content: Any) -> bool:
    """Whether `content` is of `kind`, for a file that is made anew where it is not."""
    try:
        _adapter(kind).validate_python(content)
    except ValidationError:
        return False
    return True


def _adapter(kind: Any) -> TypeAdapter:
    return _of_keys(tuple(kind.items())) if isinstance(kind, Mapping) else _of_type(kind)


@cache
def _of_keys(kinds: tuple[tuple[str, Any], ...]) -> TypeAdapter:
    return TypeAdapter(create_model("Stored", __config__=STRICT, **{key: (kind, ...) for key, kind in kinds}))


@cache
def _of_type(kind: Any) -> TypeAdapter:
    model = isinstance(kind, type) and issubclass(kind, BaseModel)  # which has a configuration of its own
    return TypeAdapter(kind, config=None if model else STRICT)


def _why(error: ValidationError, content: Any) -> str:
    """Pydantic's first error: the place, what stands there, and what should."""
    first = error.errors()[0]
    place = ".".join(_place(content, first["loc"], first["type"] == "missing"))
    if first["type"] == "missing":
        return f"it has no {place}"
    message = " ".join(first["msg"].removeprefix("Value error, ").partition(" or instance of ")[0].split())
    return f"{place or 'it'} is {brief(first['input'], 40)}: {message[:1].lower()}{message[1:150]}"


def _place(value: Any, location: Sequence[Any], missing: bool) -> list[str]:
    """The parts of a location that lead through a value; pydantic names alternatives of a type among them."""
    parts = []
    for part in location:
        if (isinstance(value, dict) and part in value) or (isinstance(value, list) and isinstance(part, int)):
            value = value[part]
            parts.append(part)
    return [str(part) if str(part).isprintable() else repr(part) for part in (*parts, *location[-1:] * missing)]
