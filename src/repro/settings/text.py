"""The text of a settings file: YAML as it reads to a person, with the surprises of YAML 1.1 refused.

DVC reads the same file by YAML 1.2: what the two read differently (010, 1:30, yes) is refused rather than guessed.
"""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, NoReturn

import yaml

from repro.errors import brief
from repro.settings.errors import SettingsError

LARGEST_FILE = 200_000  # bytes, seven times those of params.yaml
MOST_ENTRIES = 20_000  # keys and values, what aliases repeat included; params.yaml has two thousand
DEEPEST = 40
MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def read_mapping(path: Path) -> Any:
    """The content of a YAML file; SettingsError if it cannot be read or holds what people and readers take
    differently."""
    text = _text(path)
    try:
        loader = _Strict(text)
        loader.name = path.name
        try:
            root = loader.get_single_node()
            if root is None:
                return None
            _measure(root, path.name, {}, 1)
            return loader.construct_document(root)
        finally:
            loader.dispose()
    except RecursionError:
        raise SettingsError(f"{path.name}: entries are nested too deeply; at most {DEEPEST} levels") from None
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, SettingsError):
            raise
        raise SettingsError(f"{path.name} is not valid YAML: {' '.join(str(error).split())[:300]}") from error
    except (AttributeError, TypeError) as error:  # PyYAML's, where an explicit tag does not fit
        why = "a tag (!!int, !!set, …) stands before a value of another kind; remove the tag"
        raise SettingsError(f"{path.name} is not valid YAML: {why}") from error


def _text(path: Path) -> str:
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise SettingsError(f"{path} cannot be read: it is a pipe or a device; put a file of settings there")
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= LARGEST_FILE else b""
    except (OSError, ValueError) as error:  # the latter: no name of a file
        why = getattr(error, "strerror", None) or str(error)
        raise SettingsError(f"{path} cannot be read: {why.lower()}") from error
    if size > LARGEST_FILE:
        raise SettingsError(f"{path} is larger than {LARGEST_FILE // 1000} kB; it should hold settings alone")
    if (encoding := MARKS.get(content[:2])) is not None:
        raise SettingsError(f"{path.name} is in {encoding}; save it as UTF-8")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise SettingsError(f"{path.name}, line {line}: a byte that is not UTF-8; save the file as UTF-8") from None


def _measure(node: yaml.Node, file: str, known: dict[int, int | None], depth: int) -> int:
    """How many entries a node stands for, aliases written out. SettingsError if they are too many or never end."""
    place = id(node)
    if place in known:
        if known[place] is None:
            raise SettingsError(f"{file}, line {_line(node)}: an alias (*name) refers to what contains it; remove it")
        return known[place]
    known[place] = None
    if depth > DEEPEST:
        raise SettingsError(f"{file}, line {_line(node)}: entries are nested too deeply; at most {DEEPEST} levels are")
    inner = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    count = 1 + (sum(_measure(part, file, known, depth + 1) for part in inner) if not isinstance(inner, str) else 0)
    if count > MOST_ENTRIES:
        raise SettingsError(
            f"{file}, line {_line(node)}: more than {MOST_ENTRIES} entries, with what aliases (*name) repeat; keep the "
            "settings that are meant, written out"
        )
    known[place] = count
    return count


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


class _Strict(yaml.SafeLoader):
    def refuse(self, node: yaml.Node, why: str) -> NoReturn:
        raise SettingsError(f"{self.name}, line {_line(node)}: {brief(node.value)} {why}")

    def construct_mapping(self, node, deep=False):
        """Rejects duplicate keys; plain YAML readers silently keep only the last."""
        keys: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                break  # PyYAML's own words for it follow
            if key in keys:
                raise SettingsError(f"{self.name}: duplicate key {key!r}, the second near line {_line(key_node)}")
            keys.add(key)
        return super().construct_mapping(node, deep)

    def decimal(self, node: yaml.ScalarNode) -> int:
        if not re.fullmatch(r"[-+]?(0|[1-9][0-9]{0,30})", node.value):
            self.refuse(node, "is no plain decimal number, and readers of YAML take it differently; write it in digits")
        return int(node.value)

    def real(self, node: yaml.ScalarNode) -> float:
        if not re.fullmatch(
            r"[-+]?([0-9]*\.?[0-9]+|[0-9]+\.)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", node.value
        ):
            self.refuse(node, "is no plain decimal number, and readers of YAML take it differently; write it in digits")
        return super().construct_yaml_float(node)

    def truth(self, node: yaml.ScalarNode) -> bool:
        if node.value not in ("true", "false", "True", "False", "TRUE", "FALSE"):
            self.refuse(
                node, "is true or false to some readers of YAML and text to others; write true or false, or quotes"
            )
        return node.value.lower() == "true"


_Strict.add_constructor("tag:yaml.org,2002:int", _Strict.decimal)
_Strict.add_constructor("tag:yaml.org,2002:float", _Strict.real)
_Strict.add_constructor("tag:yaml.org,2002:bool", _Strict.truth)
