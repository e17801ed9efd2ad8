"""Failures that are expected: bad input, something missing, a full disk. Each ends in one sentence, and no traceback.

An exception whose text is written for the user is a `Refused`. Where nothing catches one, Python prints its sentence
alone, and so does Jupyter under a cell: that is what a script around `repro.trl`, or a notebook run by hand, shows. A
command line's `main` is a `command`, which also finds words for the system's own errors. Anything else is our own
fault, and keeps its traceback.
"""

import argparse
import errno
import functools
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from repro import stops

WORDS = {int: "whole number", float: "number"}
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, a quota, a limit on the size of a file
TORCH_FULL = re.compile(r"can't allocate memory|out of memory|tried to allocate")
INTERRUPTED = f"interrupted; {stops.TAKES_UP}"
WHEEL = Path(__file__).with_name("shipped").is_dir()  # installed from a wheel: there is no Makefile


class Refused(Exception):
    """One sentence: what is wrong, where, and the cure."""

    lines = False  # True: the text has lines of its own, such as commands to copy

    def __str__(self) -> str:
        return installs(super().__str__())

    def _render_traceback_(self) -> list[str]:
        """What Jupyter shows in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


def installs(text: str) -> str:
    """`text`, whose `make extra-NAME` is pip's command where there is no Makefile. vLLM for a CPU is no extra."""
    names = {None: "engine", "vllm": "gpu"}
    pip = (lambda found: f"`pip install 'repro-rollouts[{names.get(found[1], found[1])}]'`") if WHEEL else "\\g<0>"
    return re.sub("`make (?:setup|extra-(\\w+))`", pip, text)


def command(
    main: Callable[..., int | None] | None = None,
    *,
    name: str = "repro",
    status: int = 1,
    interrupted: str = INTERRUPTED,
) -> Callable[..., int]:
    """`main` returning its exit status: `status` after a failure, told on stderr in one sentence if it was expected.

    Ctrl-C and SIGTERM end it with 130 and 143. `interrupted` is said after the former; its part after the semicolon,
    what a next call takes up, after either.
    """
    if main is None:
        return functools.partial(command, name=name, status=status, interrupted=interrupted)

    def say(text: str) -> None:
        print(f"{name}: {text}", file=sys.stderr, flush=True)

    def stopped(number: int) -> str:
        return interrupted if number == signal.SIGINT else f"{stops.WORDS[number]};{interrupted.partition(';')[2]}"

    @functools.wraps(main)
    def told(*arguments: Any, **options: Any) -> int:
        with stops.listening():
            try:
                return main(*arguments, **options) or 0
            except (Exception, KeyboardInterrupt, SystemExit) as error:
                if number := stops.number_of(error):
                    say((isinstance(error, KeyboardInterrupt) and str(error)) or stopped(number))
                    return 128 + number
                if isinstance(error, SystemExit):  # of argparse
                    raise
                if isinstance(error, BrokenPipeError):  # as in `… list | head`
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                    return 1
                if (said := sentence(error)) is None:
                    traceback.print_exc()
                    said = "an error of repro itself, and not of its input: please report it with the traceback above"
                say(said)
                return status

    return told


def sentence(error: BaseException) -> str | None:
    """The words for an expected failure; None if it was not expected."""
    error = getattr(error, "cause", None) or error  # Ray wraps what another process raised
    if isinstance(error, ModuleNotFoundError) and (name := str(error.name).partition(".")[0]) not in ("repro", "None"):
        return installs(
            f"{name} is not installed: `make setup` installs the engine; environments/README.md has the extras"
        )
    if isinstance(error, Refused):
        return str(error) if error.lines else " ".join(str(error).split())
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and TORCH_FULL.search(str(error))):
        error = " ".join(str(error).split())[:200]
        return f"out of memory ({error or 'no more to be had'}): lower the sizes asked for, or use a larger machine"
    if isinstance(error, OSError) and error.errno in FULL:
        of = f" of {error.filename}" if error.filename else ""
        return f"no space left on the disk{of}: free some, then run the same command again"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {(error.strerror or 'cannot be used').lower()}"
    if isinstance(error, OSError) and error.errno is None and str(error):
        return " ".join(str(error).split())  # of a library, which names the file
    return None


def number(kind: type, low: float, high: float) -> Callable[[str], Any]:
    """For argparse: a number of `kind`, int or float, from `low` to `high`."""

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is no {WORDS[kind]} from {low} to {high}")
        return value

    return read


SEED = number(int, 0, 2**32 - 1)
COUNT = number(int, 1, 10**6)


def brief(value: Any, most: int = 80) -> str:
    """repr(value) on one line, cut to `most` characters: what a sentence can quote."""
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def cell(path: str) -> str:
    """`Cell In[3]`, as in tracebacks, if the code at `path` is a cell that ran as the third; `a cell` where that is not
    known, as in a worker; else "".

    >>> cell("/tmp/ipykernel_7/1234.py"), cell("src/repro/arms.py")
    ('a cell', '')
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    known = shell and shell.compile.format_code_name(path)
    return " ".join(known) if known else "a cell" * ("ipykernel_" in path)


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    ours = spec is not None and spec.name.startswith("repro.")  # python -m repro.…
    if issubclass(kind, Refused) or (ours and sentence(error)):
        print(f"repro: {sentence(error)}", file=sys.stderr)
    else:
        _usual(kind, error, trace)


_usual, sys.excepthook = sys.excepthook, _hook
