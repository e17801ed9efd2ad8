"""Wrong params.yaml: two wrong values for every key, each section with a misspelt key, and the lists of edits.

An edit is made to the whole of params.yaml as it stands, and what is accepted goes through every arm.
"""

import copy
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks.attempts.attempt import Attempt
from benchmarks.attempts.child import Ending, apart, module
from benchmarks.attempts.edits_listed import EDITS, GONE, REPLACED, RIGHT
from benchmarks.attempts.edits_of_text import TEXTS
from repro.errors import command
from repro.paths import PARAMS

BY_COMMAND = 12  # one edit in so many is made to the file too, and `python -m repro.pipeline check` asked
UNREAD = ("arms", "atlas_arms", "scales", "scale")  # by the sweep of `values`; `EDITS` has them


@functools.cache
def whole() -> dict[str, Any]:
    """params.yaml, its arms compared as they are trained here: whatever is not what the atlas's runs were made with is
    refused for that, which would hide what else is let in."""
    return yaml.safe_load(PARAMS.read_text()) | {"atlas_panel": None}


def values() -> Iterator[tuple[str, dict[str, Any], str]]:
    """(group, edit, why it may be accepted): two wrong values for each key, in turn, so that each of REPLACED meets
    many keys; each section with a misspelt key."""
    for place, (key, value) in enumerate(_leaves({k: v for k, v in whole().items() if k not in UNREAD})):
        others = REPLACED[type(value)]
        for turn in range(2):
            other = others[(2 * place + turn) % len(others)]
            yield f"another {type(value).__name__}", {key: other}, RIGHT.get((key, repr(other)), "")
    for key, section in _sections(whole()):
        first = next(iter(section))
        yield "misspelt keys", {f"{key}{first}": GONE, f"{key}{first}_": section[first]}, ""


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{place}.{key}" if place else key)
    else:
        yield place, value


def _sections(value: dict[str, Any], place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if place not in ("", "arms.", "atlas_arms.", "task.families.", "scales."):  # their keys are names
        yield place, value
    for key, inner in value.items():
        if isinstance(inner, dict) and inner and key not in ("atlas_arms", "scales") and place != "arms.":
            yield from _sections(inner, f"{place}{key}.")


def edited(edit: dict[str, Any]) -> dict[str, Any]:
    """params.yaml with other values; with "+", mappings are added to what stands there."""
    raw = copy.deepcopy(whole())
    for key, value in edit.items():
        *path, last = key.split(".")
        section = functools.reduce(lambda inner, part: inner[part], path, raw)
        if value is GONE:
            del section[last]
        elif key != "+":
            section[last] = section[last] | value if "+" in edit else value
    return raw


@command
def check(read: Callable[[], Any]) -> None:
    """What `python -m repro.pipeline check` does with settings from elsewhere."""
    from repro.pipeline.manifest import check as every_arm

    every_arm(read())


def attempts() -> Iterator[Attempt]:
    """Each edit; some of them a second time, in the file and by the command line. An edit of the text is made to the
    file, any other to what it holds."""
    from repro.settings import load, parse

    check(load)  # its imports are those of every attempt
    scratch = Path("edited.yaml").resolve()
    kept = PARAMS.read_bytes()

    def by_settings(edit: dict[str, Any]) -> Ending:
        return apart(lambda: check(lambda: parse(edited(edit))))

    def by_text(content: bytes) -> Ending:
        scratch.write_bytes(content)
        return apart(lambda: check(lambda: load(scratch)))

    def by_command(content: bytes) -> Ending:
        PARAMS.write_bytes(content)
        try:
            return apart(module("repro.pipeline", "check"))
        finally:
            PARAMS.write_bytes(kept)

    everything = [*values(), *EDITS]
    for place, (group, edit, right) in enumerate(everything):
        name = repr(edit)[:200]
        yield Attempt("edits", group, name, functools.partial(by_settings, edit), right)
        if place % (2 * BY_COMMAND) == 0 and not _unwritable(edit):
            content = yaml.safe_dump(edited(edit), allow_unicode=True).encode()
            yield Attempt("edits", "by pipeline check", name, functools.partial(by_command, content), right)
    for place, (group, name, edit, right) in enumerate(TEXTS):
        content = edit(kept.decode())
        yield Attempt("edits", f"text: {group}", name, functools.partial(by_text, content), right)
        if place % (BY_COMMAND // 2) == 0:
            yield Attempt("edits", "by pipeline check", name, functools.partial(by_command, content), right)


def _unwritable(value: Any) -> bool:
    return "\\x00" in repr(value)  # a zero byte, which no YAML holds
