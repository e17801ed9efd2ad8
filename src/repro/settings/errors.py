"""Error messages of wrong settings."""

import difflib
from typing import Any


class SettingsError(ValueError):
    """One sentence: which key of params.yaml, what is wrong with it, how to fix it."""


def nearest(name: str, valid: Any) -> str:
    """`; did you mean 'x'?`, or the list of valid names if none is close."""
    near = difflib.get_close_matches(str(name), [str(entry) for entry in valid], n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; valid names: {', '.join(map(str, valid))}"
