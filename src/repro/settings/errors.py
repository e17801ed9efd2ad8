"""Error messages of wrong settings."""

import difflib
from typing import Any

from repro.errors import Refused


class SettingsError(Refused, ValueError):
    """One sentence: which key of params.yaml, what is wrong with it, how to fix it."""


def nearest(name: str, valid: Any) -> str:
    """`; did you mean 'x'?`, or the list of valid names if none is close."""
    near = difflib.get_close_matches(str(name)[:100], [str(entry) for entry in valid], n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; valid names: {listed([str(entry) for entry in valid])}"


def listed(names: list[str], most: int = 12) -> str:
    """The first of `names`, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
