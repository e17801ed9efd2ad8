"""The sandbox holds whatever its function does, and math-verify's word comes through it unchanged."""

import os
import signal
import sys
import time

import pytest

from repro.data import verify
from repro.data.sandbox import Sandbox, SandboxFailed
from repro.data.verify import TAIL, Verdict, Verifier, compute_score

JUDGES = '''
"""What a function may do in its child process."""

import os
import time


def make():
    calls = []

    def act(what, truth=""):
        calls.append(what)
        if what == "count":
            return len(calls)
        if what == "sleep":
            time.sleep(60)
        if what == "loop":
            while True:
                pass
        if what == "deaf":  # one operation that no signal handler interrupts
            return 10 ** (10**9) % 7
        if what == "memory":
            return len(bytearray(8 << 30))
        if what == "exit":
            os._exit(3)
        if what == "raise":
            raise ValueError(what)
        if what == "quit":
            raise SystemExit
        if what == "recurse":
            return act(what)
        if what == "print":
            print("{not an answer")
        if what == "write":
            with open(truth, "w") as file:
                file.write("x")
        if what == "environment":
            return sorted(os.environ)
        return "equal" if what == truth else "different"

    return act


def absent():
    raise ImportError("math-verify is not installed")
'''


@pytest.fixture(scope="module")
def judges(tmp_path_factory):
    """A module that the child can import."""
    folder = tmp_path_factory.mktemp("judges")
    (folder / "judges_of_this_test.py").write_text(JUDGES)
    sys.path.insert(0, str(folder))
    yield "judges_of_this_test:make"
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def sandbox(judges):
    with Sandbox(judges, seconds=0.5, megabytes=1024) as one:
        yield one


@pytest.mark.parametrize(
    ("what", "outcome"),
    [
        ("sleep", "timeout"),
        ("loop", "timeout"),
        ("deaf", "timeout"),
        ("memory", "memory"),
        ("exit", "crash"),
        ("raise", "error"),
        ("quit", "error"),
        ("recurse", "error"),
        ("write", "error"),
    ],
)
def test_whatever_the_function_does_the_caller_goes_on(sandbox, what, outcome, tmp_path):
    """Each ends in its outcome and within the limit, and the next call is answered, if need be by a new child."""
    sandbox.call("count")
    started = time.monotonic()
    answer = sandbox.call(what, str(tmp_path / "written"))
    assert (answer.outcome, answer.value) == (outcome, None)
    assert time.monotonic() - started < 5 and answer.error
    assert sandbox.call("same", "same").value == "equal"


def test_one_child_serves_until_it_is_replaced(sandbox):
    first = sandbox.call("count").value
    assert sandbox.call("count").value == first + 1
    sandbox.call("exit")
    assert sandbox.call("count").value == 1
    sandbox.close()
    assert sandbox.call("count").value == 1


def test_prints_do_not_stand_between_the_answers(sandbox):
    assert sandbox.call("print").value == "different"
    assert sandbox.call("a\x00\ud800\n", "a\x00\ud800\n").value == "equal"


def test_the_child_does_not_see_the_environment(sandbox, monkeypatch):
    monkeypatch.setenv("SOME_SECRET", "1")
    sandbox.close()
    assert not {"SOME_SECRET", "HOME"} & set(sandbox.call("environment").value)


def test_no_child_outlives_its_sandbox(judges):
    one = Sandbox(judges, seconds=0.5, megabytes=1024)
    one.call("count")
    child = one._child.pid
    one.close()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_a_child_that_cannot_start_is_one_sentence(judges):
    for factory in (judges.replace("make", "absent"), "no.such.module:make"):
        with (
            pytest.raises(SandboxFailed, match="does not start: ") as raised,
            Sandbox(factory, seconds=1, megabytes=1024) as one,
        ):
            one.call("x")
        assert "\n" not in str(raised.value)


def test_a_child_that_something_else_has_killed_costs_no_verdict(judges, monkeypatch):
    """It may be the kernel, out of memory: the call is made once more. Where no child starts any more, hours into a
    run, the answer is a crash and no exception."""
    with Sandbox(judges, seconds=0.5, megabytes=1024) as one:
        one.call("count")
        os.kill(one._child.pid, signal.SIGKILL)
        assert one.call("same", "same").value == "equal"
        one.close()

        def out_of_processes():
            raise BlockingIOError(11, "Resource temporarily unavailable")

        monkeypatch.setattr(one, "_spawn", out_of_processes)
        answer = one.call("same", "same")
        assert answer.outcome == "crash" and "does not start: " in answer.error


def test_verdicts_come_back_in_order_from_several_children(judges):
    with Verifier(2, seconds=0.5, megabytes=1024, judge=judges) as verifier:
        found = verifier.check_all(["a", "sleep", "b", "exit", "a"], ["a", "x", "a", "x", "a"])
        assert [verdict.found for verdict in found] == ["equal", "timeout", "different", "crash", "equal"]
        assert [verdict.correct for verdict in found] == [True, False, False, False, True]
        assert verifier.check_all([], []) == []
        with pytest.raises(ValueError, match="2 responses and 1 answers"):
            verifier.check_all(["a", "b"], ["a"])
        assert verifier.check("x" * TAIL + "a", "x" * (TAIL - 1) + "a") == Verdict("equal")  # the tail alone


def test_verls_reward_is_the_verdict(judges, monkeypatch):
    with Verifier(judge=judges) as verifier:
        monkeypatch.setattr(verify, "_verifiers", [verifier])
        assert compute_score("math500", "7", "7", {"index": 0}, processes=2, unknown=None) == 1.0
        assert compute_score(data_source="math500", solution_str="7", ground_truth=8) == 0.0


@pytest.fixture(scope="module")
def verifier():
    pytest.importorskip("math_verify", reason="make extra-verl")
    with Verifier() as one:
        yield one


@pytest.mark.verl
@pytest.mark.parametrize(
    ("response", "truth", "found"),
    [
        ("So the answer is $\\boxed{\\frac{1}{2}}$.", "0.5", "equal"),
        ("First \\boxed{3}. But that is wrong. So \\boxed{4}.", "4", "equal"),
        ("\\boxed{3} and \\boxed{4}", "3, 4", "equal"),  # boxes close together are one answer
        ("\\boxed{4}, from the 17 of before", "4", "equal"),
        ("Answer: 1,242", "1242", "equal"),
        ("\\boxed{025}", "25", "equal"),
        ("\\boxed{(3, \\tfrac{\\pi}{2})}", "\\left( 3, \\frac{\\pi}{2} \\right)", "equal"),
        ("\\boxed{-7, 2}", "2, -7", "equal"),
        ("\\boxed{x^2+2x+1}", "(x+1)^2", "equal"),
        ("\\boxed{\\text{Evelyn}}", "\\text{Evelyn}", "equal"),
        ("\\boxed{4.5 \\times 10^{33}}", "4.5e33", "equal"),  # as MinervaMath writes it, and as models do
        ("\\boxed{4.5e33}", "4.5e33", "equal"),
        ("\\boxed{0.00001}", "1e-5", "equal"),
        ("\\boxed{4.6 \\times 10^{33}}", "4.5e33", "different"),
        ("\\boxed{5}", "6", "different"),
        ("I do not know.", "6", "no answer"),
        ("", "6", "no answer"),
    ],
)
def test_math_verifys_word(verifier, response, truth, found):
    assert verifier.check(response, truth) == Verdict(found)


GARBAGE = [  # on the second math-verify alone hangs, whatever its own time limit
    "\\boxed{9^{9^{9^{9}}}}",
    "\\boxed{\\dfrac{5^{\\left(5^{\\left(5^{\\left(5^5\\right)}\\right)} - 4\\right)} - 5}{16}}",
    "\\boxed{" * 2000,
    "{" * 9000,
    "\\boxed{\\frac{1}{0}}",
    "\\boxed{\\int_0^1 \\sin(\\sin(\\sin(x^{x^{x}}))) dx}",
    "\x00\ud800\u202e$$\\",
    "$" * 9000,
    "\\boxed{" + "1+" * 4000 + "1}",
    "\\boxed{\\sum_{n=1}^{10^{10}} n^{n}}",
    "\\boxed{" + "x^{" * 60 + "x" + "}" * 60 + "}",
    "\\boxed{" + "\\frac{1}{" * 1500 + "x" + "}" * 1500 + "}",
    "\\boxed{__import__('os').system('exit')} print(open('/etc/passwd').read())",
]


@pytest.mark.verl
def test_garbage_neither_hangs_nor_raises():
    """All at once, on more children than there are cores; each child answers afterwards."""
    pytest.importorskip("math_verify", reason="make extra-verl")
    with Verifier(6, seconds=1.5) as impatient:
        impatient.check_all(["\\boxed{7}"] * 6, ["7"] * 6)
        started = time.monotonic()
        found = impatient.check_all(GARBAGE, ["7"] * len(GARBAGE))
        assert not any(verdict.correct for verdict in found)
        assert found[0].found == "timeout" and time.monotonic() - started < 60
        assert impatient.check("\\boxed{7}", "7").correct
