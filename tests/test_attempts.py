"""The harness of attempts: its rule names every outcome, and command lines that need neither torch nor a model."""

import functools
from pathlib import Path

import pytest

from benchmarks.attempts import attacks_listed, commands_listed, places, places_listed
from benchmarks.attempts.attempt import MARK, Attempt, made, named
from benchmarks.attempts.child import Ending, apart, module
from benchmarks.attempts.table import counted, table
from repro.paths import ROOT

TRIED = Attempt("commands", "repro", "x", lambda: Ending(0, ""))


@pytest.mark.parametrize(
    ("ending", "more", "outcome"),
    [
        (Ending(1, "repro: there is no arm 'x'\n"), {}, "one sentence"),
        (Ending(1, "a warning\nrepro.verl: no\n"), {}, "one sentence"),
        (Ending(1, "repro: no\n  a line of code\nUserWarning: late\n"), {}, "one sentence"),
        (Ending(1, f"repro: {'x' * 400}\n"), {}, "too long"),
        (Ending(2, "usage: x [-h]\nx: error: y\n"), {}, "usage"),
        (Ending(1, "repro: y\nTraceback (most recent call last):\n"), {}, "traceback"),
        (Ending(1, "repro: y\n", "Traceback (most recent call last):\n"), {}, "traceback"),
        (Ending(1, ""), {}, "silent"),
        (Ending(1, "Killed"), {}, "silent"),
        (Ending(-11, "repro: y\n"), {}, "silent"),
        (Ending(None, ""), {}, "hang"),
        (Ending(0, ""), {}, "accepted"),
        (Ending(0, ""), {"right": "harmless"}, "rightly accepted"),
        (Ending(0, ""), {"held": True}, "held"),
        (Ending(1, "repro: no\n"), {"right": "harmless"}, "refused"),
    ],
)
def test_an_ending_is_named_by_rule(ending, more, outcome):
    assert named(ending, False, Attempt("commands", "repro", "x", lambda: ending, **more)) == outcome
    assert named(ending, True, TRIED) == "executed"


def test_a_process_of_its_own_is_told_by_its_status_and_ended_where_it_hangs():
    def fails():
        raise SystemExit("x: no")

    assert apart(lambda: 3) == Ending(3, "") and apart(fails) == Ending(1, "x: no\n")
    assert apart(lambda: 1 / 0).said.endswith("ZeroDivisionError: division by zero\n")
    assert apart(lambda: __import__("time").sleep(60), patience=0.2).status is None
    assert apart(lambda: sum(iter(int, 1)), seconds=1).status is None


def test_the_table_counts_each_attempt_once():
    page = Attempt("attacks", "pages", "y", TRIED.act, held=True)
    right = Attempt("commands", "repro", "z", TRIED.act, right="it lists")
    counts = {
        "commands": {"repro": {"at": "abc, today"} | counted([(TRIED, "usage"), (right, "rightly accepted")])},
        "attacks": {"pages": {"at": "abc, today"} | counted([(page, "held")])},
    }
    text = table(counts)
    shown = {line.split(" | ")[0]: line.split(" | ")[2:7] for line in text.splitlines()}
    assert shown["| all"] == ["3", "0", "1", "1", "1"] and shown["| all commands"] == ["2", "0", "1", "0", "1"]
    assert "| it lists | 1 |" in text and text.endswith("Commits: abc, today (2 groups).\n")


def test_there_are_as_many_attempts_as_the_review_made():
    from benchmarks.attempts import edits

    assert len([*edits.values(), *edits.EDITS, *edits.TEXTS]) >= 450
    assert sum(map(len, commands_listed.LINES.values())) >= 200
    attacks = (attacks_listed.PAGES, attacks_listed.ANSWERS, attacks_listed.SAMPLERS, places_listed.PLACES)
    assert sum(map(len, attacks)) >= 55 and len(places_listed.PLACES) >= 40


@pytest.mark.parametrize(
    "name",
    [
        "params.yaml is a pipe",
        "dvc.lock is endless zeros",
        "the root is a link to itself",
        "a screen of ASCII, a scale",
    ],
)
def test_odd_surroundings_end_in_one_sentence_or_are_none(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    line, how, right = places_listed.PLACES[name]
    outcome, said = made(Attempt("attacks", "surroundings", name, functools.partial(places.tried, line, how), right))
    assert outcome == ("rightly accepted" if right else "one sentence"), said


@pytest.mark.parametrize(("name", "line"), commands_listed.CHEAP, ids=lambda value: " ".join(value)[:40])
def test_a_wrong_command_line_is_one_sentence(name, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    attempt = Attempt("commands", name, "", functools.partial(apart, module(name, *line)))
    outcome, said = made(attempt)
    assert outcome == "one sentence" and not Path(MARK).exists(), said
