"""The stages that have run, as recorded in dvc.lock."""

import hashlib
from typing import Any

import yaml

from repro import paths
from repro.files import Unreadable

CONFLICT = b"<<<<<<< "


def recorded_stages() -> dict[str, Any]:
    """{address: entry} of dvc.lock, as `report@grpo`; empty if nothing has run yet."""
    lock = paths.ROOT / "dvc.lock"
    return stages_in(lock.read_bytes(), str(lock)) if lock.exists() else {}


def stages_in(text: bytes, name: str) -> dict[str, Any]:
    """{address: entry} of a lock's text; Unreadable, with its `name`, if it is none or was cut."""
    if text.startswith(CONFLICT) or b"\n" + CONFLICT in text:
        cure = "`git checkout --theirs dvc.lock`, or `--ours`, takes one side's, then `dvc repro` makes what differs"
        raise Unreadable(f"{name} has the marks of a merge's conflict: {cure}")
    try:
        content = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # ten times as fast
        if not text.endswith(b"\n"):  # as DVC ends it; what is there may be YAML all the same
            raise ValueError("its last line is cut")
        return {address: dict(entry) for address, entry in content.get("stages", {}).items()}
    except (yaml.YAMLError, ValueError, AttributeError, TypeError, RecursionError) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise Unreadable(f"{name} is no lock of DVC ({why}): restore it, as with `git checkout dvc.lock`") from error


def recorded_dependencies() -> set[str]:
    """The md5 of every dependency of a stage in dvc.lock."""
    return {dep["md5"] for entry in recorded_stages().values() for dep in entry.get("deps", []) if "md5" in dep}


def md5(text: str) -> str:
    """As DVC hashes a file of that text."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
