"""The stages that have run, as recorded in dvc.lock."""

import hashlib
from collections.abc import Iterable
from typing import Any

import yaml

from repro import paths
from repro.files import Unreadable


def recorded_dependencies() -> set[str]:
    """The md5 of every dependency of a stage in dvc.lock; empty if nothing has run yet."""
    lock = paths.ROOT / "dvc.lock"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast
    try:
        content: dict[str, Any] = yaml.load(lock.read_text(encoding="utf-8"), loader) if lock.exists() else {}
        stages = (content or {}).get("stages", {}).values()
        return {dep["md5"] for entry in stages for dep in entry.get("deps", []) if "md5" in dep}
    except (yaml.YAMLError, ValueError, AttributeError, TypeError) as error:
        why = " ".join(str(error).split())[:200]
        raise Unreadable(f"{lock} is no lock of DVC ({why}): restore it, as with `git checkout dvc.lock`") from error


def recorded(manifests: Iterable[str]) -> list[bool]:
    """Whether dvc.lock contains each of these manifests (given as texts): if so, the existing results have the same
    settings, notebook and code."""
    known = recorded_dependencies()
    return [hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() in known for text in manifests]
