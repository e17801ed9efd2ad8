"""Read and check params.yaml."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from repro.paths import PARAMS
from repro.settings.errors import SettingsError, nearest
from repro.settings.schema import Settings


class _UniqueKeys(yaml.SafeLoader):
    """Rejects duplicate keys; plain YAML readers silently keep only the last."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key, (mark, _) in zip(keys, node.value, strict=True):
            if keys.count(key) > 1:
                raise SettingsError(
                    f"params.yaml: duplicate key {key!r}, the second near line {mark.start_mark.line + 1}"
                )
        return super().construct_mapping(node, deep)


def load(path: Path = PARAMS, **overrides: Any) -> Settings:
    """The settings of `path` with its scale merged in. `overrides` replace top-level keys (`scale="smoke"`,
    `seeds=[7]`), also those that the scale sets."""
    try:
        raw = yaml.load(path.read_text(), _UniqueKeys)
    except yaml.YAMLError as error:
        raise SettingsError(f"{path.name} is not valid YAML: {' '.join(str(error).split())}") from error
    raw = {**_mapping(raw, path.name), **overrides}
    scales = raw.get("scales")
    if isinstance(scales, dict) and isinstance(chosen := scales.get(raw.get("scale")), dict):
        kept = {key: value for key, value in chosen.items() if key not in overrides}
        raw["scales"] = {**scales, raw["scale"]: kept}
    return parse(raw)


def parse(raw: dict[str, Any]) -> Settings:
    """Settings from the mapping in params.yaml; SettingsError if they are wrong."""
    scales = _mapping(raw.get("scales"), "scales")
    scale = raw.get("scale")
    if scale not in scales:
        raise SettingsError(f"params.yaml: scale: there is no scale {scale!r}{nearest(str(scale), scales)}")
    plain = {key: value for key, value in raw.items() if key != "scales"}
    checked = {}
    for name in sorted(scales, key=lambda name: name != scale):  # other scales are checked too
        merged = merge(plain, _mapping(scales[name], f"scales.{name}"))
        checked[name] = _validate({**merged, "scale": name}, "" if name == scale else f" (at scale {name})")
    return checked[scale]


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingsError(f"params.yaml: {where} is {value!r}; it should be a mapping of keys to values")
    return value


def merge(base: dict[str, Any], replacements: dict[str, Any]) -> dict[str, Any]:
    """`base` with `replacements` merged into it recursively; the schema rejects unknown keys."""
    merged = dict(base)
    for key, value in replacements.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = merge(base[key], value) if both else value
    return merged


def _validate(plain: dict[str, Any], where: str) -> Settings:
    try:
        return Settings.model_validate(plain)
    except ValidationError as error:
        raise SettingsError(f"params.yaml{where}: {_sentence(error)}") from None


def _sentence(error: ValidationError) -> str:
    """Pydantic's first error as one sentence about a key of params.yaml."""
    errors = error.errors()
    first = next((entry for entry in errors if entry["type"] == "extra_forbidden"), errors[0])  # misspelt: also missing
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        fields = _fields_at(first["loc"][:-1])
        return f"unknown key {place!r}{nearest(first['loc'][-1], fields)}"
    if first["type"] == "missing":
        return f"the key {place!r} is missing; add it"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{place + ': ' if place else ''}{' '.join(message.split())}"
    if first["type"] == "string_pattern_mismatch":
        return f"{first['input']!r} in {first['loc'][0]}: a name is lower-case letters, digits, dots and hyphens"
    if first["type"] == "float_type" and isinstance(first["input"], str) and "e" in first["input"]:
        message += ", which YAML reads from 1.0e-4 but not from 1e-4"
    return f"{place} is {first['input']!r}: {message[0].lower() + message[1:]}"


def _fields_at(location: tuple) -> list[str]:
    """Names of the fields of the section at `location`, for the nearest-name hint."""
    kind: Any = Settings
    for part in location:
        kind = kind.model_fields[part].annotation if isinstance(kind, type) else kind.__args__[-1]
    return list(kind.model_fields)
