"""The stages that have run, as recorded in dvc.lock."""

import hashlib
import re
import time
from collections.abc import Iterable
from typing import Any

import yaml

from repro import paths
from repro.files import Unreadable, read_json
from repro.stored import regular

HELD = ".dvc/tmp/rwlock"  # which `dvc` holds which file
UNHELD = "delete it, unless another DVC runs here"
CONFLICT = b"<<<<<<< "
RESOLVE = (
    "take one side's, `git checkout --theirs dvc.lock` or --ours, and of params.yaml the same side or your own merge; "
    "then `dvc repro`, which makes only what neither has, and `git add dvc.lock params.yaml`"
)
SOON, WRITTEN = 1.0, 10.0  # seconds in which DVC has written a file of its own, and all that it holds a lock for
NESTING, MOST = re.compile(rb"[\[{]|- -"), 1000  # DVC writes next to none


def recorded_stages() -> dict[str, Any]:
    """{address: entry} of dvc.lock, as `report@grpo`; empty if nothing has run yet."""
    lock = regular(paths.ROOT / "dvc.lock", "restore it, as with `git checkout dvc.lock`")
    began = time.monotonic()
    while True:
        try:
            return stages_in(lock.read_bytes(), str(lock)) if lock.exists() else {}
        except Unreadable:
            waited = time.monotonic() - began
            if waited > WRITTEN or (waited > SOON and not _dvc_runs()):  # it empties what says so before it writes, too
                raise
        time.sleep(0.1)


def _dvc_runs() -> bool:
    """Whether a `dvc` holds files: another stage's may be writing dvc.lock, which it empties first."""
    held = paths.ROOT / HELD
    return held.exists() and held.stat().st_size > len("{}")


def check() -> None:
    """Unreadable where a file of DVC's was cut: DVC would say so, and not what to do about it."""
    recorded_stages()
    held = regular(paths.ROOT / HELD, UNHELD)
    if held.exists():
        read_json(held, UNHELD)


def stages_in(text: bytes, name: str) -> dict[str, Any]:
    """{address: entry} of a lock's text; Unreadable, with its `name`, if it is none or was cut."""
    if text.startswith(CONFLICT) or b"\n" + CONFLICT in text:
        raise Unreadable(f"{name} has the marks of a merge's conflict: {RESOLVE}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast
    try:
        if len(NESTING.findall(text)) > MOST:
            raise ValueError("it nests too deeply")  # which would end the library in C, and this process with it
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
