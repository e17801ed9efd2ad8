"""The sandbox holds whatever its function does, and math-verify's word comes through it unchanged."""

import json
import os
import signal
import sys
import time

import pytest
from answer_tables import FORMS, NUMBERS, OTHERS, WORDS
from conftest import ROOT

from benchmarks import judge as benchmark
from repro.data import verify
from repro.data.answers import matchable
from repro.data.sandbox import Sandbox
from repro.data.verify import TAIL, Verdict, Verifier, compute_score

TABLE = json.loads((ROOT / "benchmarks/judge.json").read_text())
KNOWN = {("-2,-2", r"So the answer is $\boxed{-2}$.")}
JUDGES = """
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
        if what == "deaf":  # one operation that no signal handler interrupts
            return 10 ** (10**9) % 7
        if what == "memory":
            return len(bytearray(8 << 30))
        if what == "exit":
            os._exit(3)
        if what == "raise":
            raise ValueError(what)
        if what == "print":
            print("{not an answer")
        if what == "write":
            with open(truth, "w") as file:
                file.write("x")
        if what == "environment":
            return sorted(os.environ)
        return "equal" if what == truth else "different"

    return act

"""


@pytest.fixture(scope="module")
def judges(tmp_path_factory):
    """A module that the keeper can import."""
    folder = tmp_path_factory.mktemp("judges")
    (folder / "judges_of_this_test.py").write_text(JUDGES)
    sys.path.insert(0, str(folder))
    yield "judges_of_this_test:make"
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def sandbox(judges):
    with Sandbox(judges, seconds=0.5, megabytes=1024) as one:
        yield one


ENDS = {"sleep": "timeout", "deaf": "timeout", "memory": "memory", "exit": "crash"}


@pytest.mark.parametrize("what", [*ENDS, "raise", "write"])
def test_whatever_the_function_does_the_caller_goes_on(sandbox, what, tmp_path):
    """Each ends in its outcome and within the limit, and the same keeper answers the next call."""
    sandbox.call("count")
    started, keeper = time.monotonic(), sandbox._keeper.pid
    answer = sandbox.call(what, str(tmp_path / "written"))
    assert (answer.outcome, answer.value) == (ENDS.get(what, "error"), None)
    assert time.monotonic() - started < 5 and answer.error
    assert sandbox.call("same", "same").value == "equal" and sandbox._keeper.pid == keeper


def test_a_call_changes_nothing_for_the_next(sandbox):
    assert [sandbox.call("count").value for _ in range(3)] == [1, 1, 1]


def test_a_call_sees_neither_the_environment_nor_the_standard_streams(judges, monkeypatch):
    monkeypatch.setenv("SOME_SECRET", "1")
    with Sandbox(judges, seconds=5, megabytes=1024) as one:
        assert not {"SOME_SECRET", "HOME"} & set(one.call("environment").value)
        assert one.call("print").value == "different"
        assert one.call("a\x00\ud800\n", "a\x00\ud800\n").value == "equal"
        keeper = one._keeper.pid
    with pytest.raises(ProcessLookupError):
        os.kill(keeper, 0)


def test_a_keeper_that_something_else_has_killed_costs_no_verdict(judges, monkeypatch):
    """It may be the kernel, out of memory: the call is made once more. Where no keeper starts any more, hours into a
    run, the answer is a crash and no exception."""
    with Sandbox(judges, seconds=0.5, megabytes=1024) as one:
        one.call("count")
        os.kill(one._keeper.pid, signal.SIGKILL)
        assert one.call("same", "same").value == "equal"
        one.close()

        def out_of_processes(descriptor):
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
        ("\\boxed{3}, which is wrong, or so I think. \\boxed{4}", "4", "equal"),
        ("$x_1=\\boxed{3}$, $x_2=\\boxed{4}$", "3, 4", "equal"),
        ("\\boxed{1}, \\boxed{242}", "1242", "different"),
        ("\\boxed{4} \\boxed{4}", "4", "equal"),
        ("$\\boxed 4$, $\\boxed\\frac{1}{2}$", "4, 0.5", "equal"),
        ("$2+1=\\boxed{3}$, $2+2=\\boxed{4}$", "4", "equal"),
        ("\\boxed{3}。所以答案是\\boxed{4}", "4", "equal"),
        ("\\boxed{4}, from the 17 of before", "4", "equal"),
        ("Answer: 1,242", "1242", "equal"),
        ("\\boxed{025}", "25", "equal"),
        ("\\boxed{(3, \\tfrac{\\pi}{2})}", "\\left( 3, \\frac{\\pi}{2} \\right)", "equal"),
        ("\\boxed{-7, 2}", "2, -7", "equal"),
        ("\\boxed{x^2+2x+1}", "(x+1)^2", "equal"),
        ("\\boxed{4.5 \\times 10^{33}}", "4.5e33", "equal"),  # as MinervaMath writes it, and as models do
        ("\\boxed{0.00001}", "1e-5", "equal"),
        ("\\boxed{5 \\text{ cm}}", "5 \\text{ m}", "equal"),  # units do not count: docs/cluster.md
        ("The answer is $\\text{Evelyn}$.", "Evelyn", "equal"),
        ("The answer is $CBA$.", "BCA", "different"),
        ("The answer is $4343_6$.", "4343_7", "different"),
        ("So he has $10,200 + $255 = $10,455. The final answer is $10,455$. I hope it is correct.", "10455", "equal"),
        ("I do not know.", "6", "no answer"),
        ("First \\boxed{7}. No: \\boxed{8", "7", "no answer"),  # a last box that is cut off or empty decides
        ("First \\boxed{8}. No: \\boxed{8", "8", "no answer"),
        ("First \\boxed{7}. No: \\boxed", "7", "no answer"),
        ("There are 7 of them: \\boxed{", "7", "no answer"),
        ("There are 7 of them: \\boxed{\\ \\text{ }}", "7", "no answer"),
        ("There are 7 of them: \\fbox{}", "7", "no answer"),
        ("\\boxed{\\{7\\", "7", "no answer"),
        ("\\boxed{1, \\text{so} \\boxed{7}", "7", "equal"),
        ("\\boxed{\\{1, 7\\}}", "\\{7, 1\\}", "equal"),
        ("", "6", "no answer"),
    ],
)
def test_math_verifys_word(verifier, response, truth, found):
    assert verifier.check(response, truth) == Verdict(found)


def verdicts(verifier, table):
    pairs = [(f"So \\boxed{{{each}}}.", truth) for truth, answers in table.items() for each in answers]
    found = verifier.check_all(*zip(*pairs, strict=True))
    return [(*pair, verdict.found) for pair, verdict in zip(pairs, found, strict=True)]


@pytest.mark.verl
def test_forms_of_an_answer(verifier):
    assert [each for each in verdicts(verifier, FORMS) if each[2] != "equal"] == []
    assert [each for each in verdicts(verifier, {truth: [truth] for truth in FORMS}) if each[2] != "equal"] == []
    assert [each for each in verdicts(verifier, OTHERS) if each[2] != "different"] == []
    assert verifier.check("So it is 20%.", "20").correct and not verifier.check("So it is 20%.", "0.2").correct


@pytest.mark.verl
@pytest.mark.parametrize("table", [NUMBERS, WORDS], ids=["numbers relative to their size", "text and numerals"])
def test_what_equals_a_truth_and_what_does_not(verifier, table):
    equal, different = ({truth: both[place] for truth, both in table.items()} for place in (0, 1))
    assert [each for each in verdicts(verifier, equal) if each[2] != "equal"] == []
    assert [each for each in verdicts(verifier, {truth: [truth] for truth in table}) if each[2] != "equal"] == []
    assert [each for each in verdicts(verifier, different) if each[2] != "different"] == []


@pytest.mark.verl
@pytest.mark.parametrize(
    "truth", ["", " ", ".", "}", "{", "\\boxed{}", "\\text{ }", "7\\", "a}{b", "7", "$7$", "{7}", "%", "see above"]
)
def test_a_truth_is_refused_exactly_where_the_judge_does_not_find_it_equal_to_itself(verifier, truth):
    assert matchable(truth) == verifier.check(f"So \\boxed{{{truth}}}.", truth).correct


def test_the_table_of_judges_is_of_all_sets_and_holds_the_claim():
    """Fewer than one right spelling in a hundred is rejected, and of the wrong answers one that a truth names twice."""
    rows = [row for row in TABLE["rows"] if row["judge"] == "repro"]
    assert {row["set"] for row in rows} == set(benchmark.truths())
    rejected = sum(row.get(kind, 0) for row in rows for kind in ("plain", "respelled"))
    assert rejected < 0.01 * 10 * sum(row["truths"] for row in rows)
    assert {tuple(each[1:3]) for each in TABLE["mistakes"] if each[3] == "wrong"} <= KNOWN


@pytest.mark.verl
def test_the_table_of_judges_holds_on_a_sample(verifier):
    """A few truths of each set, in ten spellings and twenty changes: no mistake that it does not name."""
    sample = [truth for truths in benchmark.truths().values() for truth in truths[::150]]
    asked = [(truth, *pair) for truth in sample for pair in benchmark.pairs(truth)]
    found = verifier.check_all([response for _, response, _ in asked], [truth for truth, *_ in asked])
    wrong = [each for each, verdict in zip(asked, found, strict=True) if verdict.correct == (each[2] == "wrong")]
    assert {each[:2] for each in wrong} <= {tuple(each[1:3]) for each in TABLE["mistakes"]}


GARBAGE = [  # on the second math-verify alone hangs, whatever its own time limit
    "\\boxed{9^{9^{9^{9}}}}",
    "\\boxed{\\dfrac{5^{\\left(5^{\\left(5^{\\left(5^5\\right)}\\right)} - 4\\right)} - 5}{16}}",
    "\x00\ud800\u202e$$\\",
    "\\boxed{" + "1+" * 4000 + "1}",
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
