"""What dvc.lock records of the stages that have run."""

import hashlib
from typing import Any

import yaml

from repro import paths


def recorded_dependencies() -> set[str]:
    """The md5 of everything that a stage in dvc.lock depends on; empty where nothing has run yet."""
    lock = paths.ROOT / "dvc.lock"
    content: dict[str, Any] = yaml.safe_load(lock.read_text()) if lock.exists() else {}
    return {dep["md5"] for entry in content.get("stages", {}).values() for dep in entry.get("deps", []) if "md5" in dep}


def is_recorded(manifest_text: str) -> bool:
    """Whether dvc.lock holds this very manifest: settings, notebook and code are those of the results at hand."""
    return hashlib.md5(manifest_text.encode(), usedforsecurity=False).hexdigest() in recorded_dependencies()
