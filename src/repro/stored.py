"""JSON that the project wrote and trusts later: the values are checked where it is read, not only that they are there.

Apart from repro.files, which is code of every stage: a change there would make all that is trained out of date.
"""

from collections.abc import Mapping
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
    adapter = _of_keys(tuple(kind.items())) if isinstance(kind, Mapping) else _of_type(kind)
    try:
        adapter.validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        place, given = ".".join(map(str, first["loc"])), brief(first["input"], 40)
        raise Unreadable(f"{path} cannot be read ({place} is {given}: {first['msg']}): {remedy}") from error
    return content


@cache
def _of_keys(kinds: tuple[tuple[str, Any], ...]) -> TypeAdapter:
    return TypeAdapter(create_model("Stored", __config__=STRICT, **{key: (kind, ...) for key, kind in kinds}))


@cache
def _of_type(kind: Any) -> TypeAdapter:
    model = isinstance(kind, type) and issubclass(kind, BaseModel)  # which has a configuration of its own
    return TypeAdapter(kind, config=None if model else STRICT)
