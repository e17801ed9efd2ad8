"""Ctrl-C and SIGTERM end a command in one sentence, whatever swallows them, and not what was forked from it."""

import signal
import sys

import pytest

from repro.errors import command

SAID = {signal.SIGINT: "x: interrupted; nothing is kept\n", signal.SIGTERM: "x: terminated; nothing is kept\n"}
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


@pytest.fixture(autouse=True)
def heard():
    """Both signals as in a shell's foreground; the handlers are as they were after each command."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    found = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    assert {number: signal.getsignal(number) for number in usual} == usual
    for number, handler in found.items():
        signal.signal(number, handler)


def run(main) -> int:
    return command(main, name="x", interrupted="interrupted; nothing is kept")()


@pytest.mark.parametrize("number", SAID)
def test_a_signal_is_one_sentence_and_its_status_after_cleaning_up(number, capsys):
    cleaned = []

    def main():
        try:
            signal.raise_signal(number)
        finally:
            if number == signal.SIGTERM:
                signal.raise_signal(number)  # as `timeout` does
            cleaned.append(number)

    assert run(main) == 128 + number and cleaned == [number]
    assert capsys.readouterr().err == SAID[number]


def test_rays_own_handler_is_told_of_too(capsys):
    def main():
        usual = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.signal(signal.SIGTERM, usual)

    assert run(main) == 143 and capsys.readouterr().err == SAID[signal.SIGTERM]
    with pytest.raises(SystemExit) as wrong:  # argparse
        run(lambda: sys.exit(2))
    assert wrong.value.code == 2
