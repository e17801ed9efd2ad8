"""Ctrl-C and SIGTERM end a command in one sentence, whatever swallows them, and not what was forked from it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from repro import stops
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
            signal.raise_signal(number)  # as `timeout` does
            cleaned.append(number)

    assert run(main) == 128 + number and cleaned == [number]
    assert capsys.readouterr().err == SAID[number]


@pytest.mark.parametrize("number", SAID)
def test_an_error_that_comes_of_it_is_not_told(number, capsys):
    def main():
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise RuntimeError("a worker has gone") from None

    assert run(main) == 128 + number and capsys.readouterr().err == SAID[number]


def test_what_swallows_it_may_heed_it_later(capsys):
    def main():
        try:
            signal.raise_signal(signal.SIGTERM)
        except BaseException:
            stops.heed()

    assert run(main) == 143 and capsys.readouterr().err == SAID[signal.SIGTERM]
    stops.heed()


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


def test_a_forked_process_ends_as_it_would_without(capsys):
    def main():
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, b"!")
            time.sleep(30)
            os._exit(0)
        os.read(reading, 1)  # Python drops what comes before its own part of a fork is done
        os.kill(child, signal.SIGTERM)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert run(main) == -signal.SIGTERM and capsys.readouterr().err == ""


def test_a_forked_process_may_have_a_command_of_its_own(capfd):
    def main():
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os._exit(run(lambda: (os.write(writing, b"!"), time.sleep(30))))
        os.read(reading, 1)
        os.kill(child, signal.SIGTERM)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert run(main) == 143 and capfd.readouterr().err == SAID[signal.SIGTERM]


def alone(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_what_never_comes_to_its_end_is_ended():
    done = alone(
        "import signal, time\n"
        "from repro import errors, stops\n"
        "stops.PATIENCE_SECONDS = 0.1\n"
        "def main():\n"
        "    try:\n"
        "        signal.raise_signal(15)\n"
        "    finally:\n"
        "        time.sleep(60)\n"
        "errors.command(main)()"
    )
    assert (done.returncode, done.stderr) == (143, f"repro: terminated; {stops.TAKES_UP}\n")


def test_it_is_told_of_during_the_imports_of_our_commands_and_of_no_others():
    stop = "import repro, signal; signal.raise_signal(15)"
    done = alone(f"import sys; sys.orig_argv[1:] = ['-m', 'repro.runs', 'run']; {stop}")
    assert (done.returncode, done.stderr) == (143, f"repro: terminated; {stops.TAKES_UP}\n")
    assert alone(stop).returncode == -signal.SIGTERM
    assert alone(f"import sys; sys.orig_argv[1:] = ['-m', 'pytest', '-k', 'repro']; {stop}").returncode == -15
