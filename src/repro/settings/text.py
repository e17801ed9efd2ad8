"""The text of a settings file: YAML 1.2, as DVC reads it too; `yes`, `010` and `1:30` are no surprises there."""

import pickle
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from repro.errors import brief
from repro.settings.errors import SettingsError


def read_mapping(path: Path) -> Any:
    """The content of a YAML file, a copy; SettingsError if it cannot be read, with the line where there is one."""
    try:
        return pickle.loads(_pickled(path, path.stat().st_mtime_ns, path.stat().st_size))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise SettingsError(f"{path.name}, line {line}: a byte that is not UTF-8; save the file as UTF-8") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise SettingsError(f"{path.name} is not valid YAML{line}: {brief(error.problem or error.context)}") from error
    except (YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise SettingsError(f"{path.name} is not valid YAML: {' '.join(str(error).split())[:300]}") from error


@cache  # half a second for runs/design.yaml
def _pickled(path: Path, changed: int, size: int) -> bytes:
    return pickle.dumps(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")))
