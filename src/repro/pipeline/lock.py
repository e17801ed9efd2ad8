"""The stages that have run, as recorded in dvc.lock."""

import hashlib
import time
from collections.abc import Iterable
from typing import Any

import yaml

from repro import paths
from repro.files import Unreadable

CONFLICT = b"<<<<<<< "
RESOLVE = (
    "take one side's, `git checkout --theirs dvc.lock` or --ours, and of params.yaml the same side or your own merge; "
    "then `dvc repro`, which makes only what neither has, and `git add dvc.lock params.yaml`"
)
WRITTEN = 5.0  # seconds in which a `dvc` that runs has written dvc.lock, which it empties first


def recorded_stages() -> dict[str, Any]:
    """{address: entry} of dvc.lock, as `report@grpo`; empty if nothing has run yet."""
    lock, began = paths.ROOT / "dvc.lock", time.monotonic()
    while True:
        try:
            return stages_in(lock.read_bytes(), str(lock)) if lock.exists() else {}
        except Unreadable:
            if time.monotonic() - began > WRITTEN:
                raise
        time.sleep(0.1)


def stages_in(text: bytes, name: str) -> dict[str, Any]:
    """{address: entry} of a lock's text; Unreadable, with its `name`, if it is none or was cut."""
    if text.startswith(CONFLICT) or b"\n" + CONFLICT in text:
        raise Unreadable(f"{name} has the marks of a merge's conflict: {RESOLVE}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast
    try:
        content: dict[str, Any] | None = yaml.load(text, loader)
        if content is None:
            raise ValueError("it is empty")
        if not text.endswith(b"\n"):  # as DVC ends it; what is there may be YAML all the same
            raise ValueError("its last line is cut")
        stages = {address: dict(entry) for address, entry in content.get("stages", {}).items()}
        for address, entry in stages.items():
            for each in (*entry.get("deps", ()), *({"md5": None, **out} for out in entry.get("outs", ()))):
                if not isinstance(each["path"], str) or not isinstance(each.get("md5", ""), str):
                    raise TypeError(f"stage {address} has an entry without a path or a hash")
        return stages
    except (yaml.YAMLError, ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise Unreadable(f"{name} is no lock of DVC ({why}): restore it, as with `git checkout dvc.lock`") from error


def recorded_dependencies() -> set[str]:
    """The md5 of every dependency of a stage in dvc.lock."""
    return {dep["md5"] for entry in recorded_stages().values() for dep in entry.get("deps", []) if "md5" in dep}


def recorded_outputs() -> dict[str, str]:
    """{path: md5} of every output of a stage in dvc.lock."""
    return {out["path"]: out.get("md5", "") for entry in recorded_stages().values() for out in entry.get("outs", [])}


def recorded(manifests: Iterable[str]) -> list[bool]:
    """Whether dvc.lock contains each of these manifests (given as texts): if so, the existing results have the same
    settings, notebook and code."""
    known = recorded_dependencies()
    return [md5(text) in known for text in manifests]


def md5(text: str) -> str:
    """As DVC hashes a file of that text."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
