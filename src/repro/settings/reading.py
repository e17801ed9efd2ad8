"""Read and check params.yaml."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import ValidationError

from repro.errors import brief
from repro.paths import PARAMS
from repro.settings.errors import SettingsError, nearest
from repro.settings.fields import NAME, NAMES
from repro.settings.schema import Settings
from repro.settings.text import read_mapping
from repro.settings.theory import Theory


def load(path: Path = PARAMS, **overrides: Any) -> Settings:
    """The settings of `path` with its scale merged in. `overrides` replace top-level keys (`scale="smoke"`,
    `seeds=[7]`), also those that the scale sets."""
    raw = {**_mapping(read_mapping(path), path.name), **overrides}
    scales, scale = raw.get("scales"), raw.get("scale")
    if isinstance(scales, dict) and isinstance(scale, str) and isinstance(chosen := scales.get(scale), dict):
        kept = {key: value for key, value in chosen.items() if key not in overrides}
        raw["scales"] = {**scales, scale: kept}
    return parse(raw)


def stored(path: Path) -> Settings:
    """The settings that a run stored (`Settings.model_dump_json`)."""
    try:
        return Settings.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # of pydantic too
        why = _sentence(error) if isinstance(error, ValidationError) else str(error)
        raise SettingsError(
            f"{path} holds no settings of this version of the project ({why}): give a file that a run has written"
        ) from error


def parse(raw: dict[str, Any]) -> Settings:
    """Settings from the mapping in params.yaml; SettingsError if they are wrong."""
    scales = _mapping(raw.get("scales"), "scales")
    scale = raw.get("scale")
    if not isinstance(scale, str) or scale not in scales:
        raise SettingsError(f"params.yaml: scale: there is no scale {brief(scale)}{nearest(str(scale), scales)}")
    for name, entry in scales.items():
        if not isinstance(name, str) or len(name) > 64 or not re.fullmatch(NAME, name):
            raise SettingsError(f"params.yaml: {brief(name)} in scales: {NAMES}")
        if "scale" in _mapping(entry, f"scales.{name}"):
            raise SettingsError(f"params.yaml: scales.{name}.scale: a scale cannot choose another; remove the key")
    plain = {key: value for key, value in raw.items() if key != "scales"}
    checked = {}
    for name in sorted(scales, key=lambda name: name != scale):  # other scales are checked too
        merged = merge(plain, _mapping(scales[name], f"scales.{name}"))
        where = "params.yaml" + ("" if name == scale else f" (at scale {name})")
        checked[name] = validated({**merged, "scale": name}, where)
    return checked[scale]


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingsError(f"params.yaml: {where} is {brief(value)}; it should be a mapping of keys to values")
    return value


def merge(base: dict[str, Any], replacements: dict[str, Any]) -> dict[str, Any]:
    """`base` with `replacements` merged into it recursively; the schema rejects unknown keys."""
    merged = dict(base)
    for key, value in replacements.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = merge(base[key], value) if both else value
    return merged


def validated(plain: dict[str, Any], where: str) -> Settings:
    """Settings from values that `where` gave, such as a file or a command line; SettingsError if they are wrong."""
    try:
        return Settings.model_validate(plain)
    except ValidationError as error:
        raise SettingsError(f"{where}: {_sentence(error)}") from None


def check_parameters(study: str, cell: Mapping[str, Any]) -> None:
    """For notebooks/theory/<study>.ipynb opened by hand, `cell` being its globals(): SettingsError if a value of its
    first cell is none that params.yaml could give it."""
    kind = Theory.model_fields[study].annotation
    try:
        kind.model_validate({name: cell[name] for name in kind.model_fields})
    except ValidationError as error:
        raise SettingsError(f"the notebook's parameters: {_sentence(error)}") from None


def _sentence(error: ValidationError) -> str:
    """Pydantic's first error as one sentence about a key of params.yaml."""
    errors = error.errors()
    first = next((entry for entry in errors if entry["type"] == "extra_forbidden"), errors[0])  # misspelt: also missing
    place = brief(".".join(map(str, first["loc"])), 100)[1:-1]
    if first["type"] == "extra_forbidden":
        fields = _fields_at(first["loc"][:-1])
        return f"unknown key {place!r}{nearest(str(first['loc'][-1]), fields)}"
    if first["type"] == "missing":
        return f"the key {place!r} is missing; add it"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{place + ': ' if place else ''}{' '.join(message.split())}"
    given = brief(first["input"])
    if not first["loc"]:  # the text as a whole is not JSON, or no object
        return " ".join(first["msg"].split())[:150]
    if first["loc"][-1] == "[key]" or place == "scale":
        where = ".".join(str(part) for part in first["loc"][:-2]) or place
        return f"{given} in {where}: {NAMES}"
    if first["type"] == "string_pattern_mismatch":
        return f"{place} is {given}: it should be one line of text, without a blank at its start"
    return f"{place} is {given}: {' '.join((message[0].lower() + message[1:]).split())[:150]}"


def _fields_at(location: tuple) -> list[str]:
    """Names of the fields of the section at `location`, for the nearest-name hint."""
    kind: Any = Settings
    for part in location:
        kind = kind.model_fields[part].annotation if isinstance(kind, type) else get_args(kind)[-1]
        if get_origin(kind) in (Union, UnionType):  # a section that may be left out
            kind = get_args(kind)[0]
    return list(kind.model_fields)
