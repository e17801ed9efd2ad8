"""One attempt, and the rule that names how it ended."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.attempts.child import Ending

MARK = "executed"  # a file of this name in the working directory: somebody's text was run
LONGEST = 400  # characters of a sentence
SENTENCE = re.compile(r"^(repro[\w.]*|tour|faults|attempts|[\w.]*Error): \S")
WELL = ("one sentence", "usage", "held", "rightly accepted")
WRONG = ("too long", "silent", "traceback", "hang", "accepted", "executed", "refused")  # the last: though it is right


@dataclass(frozen=True)
class Attempt:
    """`act`: what is tried, and how it ended. `right`: why it may be accepted; empty: it may not. `held`: the attempt
    checks itself that nothing came of it, by ending with status 0."""

    kind: str
    group: str
    name: str
    act: Callable[[], Ending]
    right: str = ""
    held: bool = False


def made(attempt: Attempt) -> tuple[str, str]:
    """(the name of the outcome, the last line that was said)."""
    mark = Path(MARK)
    mark.unlink(missing_ok=True)
    ending = attempt.act()
    return named(ending, mark.exists(), attempt), last_of(ending)[-1000:]


def named(ending: Ending, executed: bool, attempt: Attempt) -> str:
    """The outcome, one of WELL or WRONG."""
    last = last_of(ending)
    if executed:
        return "executed"
    if ending.status is None:
        return "hang"
    if "Traceback (most recent call last)" in ending.said or "Traceback (most recent call last)" in ending.printed:
        return "traceback"
    if ending.status == 0:
        return "held" if attempt.held else "rightly accepted" if attempt.right else "accepted"
    if attempt.right:
        return "refused"
    if ending.status == 2 and "usage: " in ending.said:
        return "usage"
    if ending.status < 0 or not SENTENCE.match(last):
        return "silent"
    return "one sentence" if len(last) <= LONGEST else "too long"


def last_of(ending: Ending) -> str:
    """The last line that was said, but for warnings and the code that they quote."""
    lines = [line for line in ending.said.splitlines() if line[:1].strip() and "Warning: " not in line]
    return lines[-1] if lines else ""
