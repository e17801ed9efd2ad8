"""What dvc.lock records of the stages that have run."""

import hashlib
from collections.abc import Iterable
from typing import Any

import yaml

from repro import paths


def recorded_dependencies() -> set[str]:
    """The md5 of everything that a stage in dvc.lock depends on; empty where nothing has run yet."""
    lock = paths.ROOT / "dvc.lock"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same, ten times as fast
    content: dict[str, Any] = yaml.load(lock.read_text(), loader) if lock.exists() else {}
    return {dep["md5"] for entry in content.get("stages", {}).values() for dep in entry.get("deps", []) if "md5" in dep}


def recorded(manifests: Iterable[str]) -> list[bool]:
    """Whether dvc.lock holds each of these very manifests (their texts): settings, notebook and code are then those of
    the results at hand."""
    known = recorded_dependencies()
    return [hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() in known for text in manifests]
