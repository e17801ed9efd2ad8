"""Steps with a wrong procedure, read from responses and counted by hand."""

import pandas as pd

from repro.experiments.base_policy.procedures import NONE, by_wrong_steps, describe_steps, example, steps_of
from repro.tasks.queries import Query


def test_steps_are_read_from_every_style():
    assert steps_of("7+8=15;15-9=6#6") == [("7+8", "15"), ("15-9", "6")]
    assert steps_of("7=7+8=5;5-8=7;5=5-9=-4;-4+9=5#-4") == [("7+8", "5"), ("5-9", "-4")]
    assert steps_of("8,12;12,8;4,8;8,4#4") == [("12,8", "8,4"), ("8,4", "#4")]  # wordy: both orders of a pair
    assert steps_of("12,8;8,0#8") == [("12,8", "#8")] and steps_of("#3") == steps_of("12*30=360#360") == []


def test_wrong_steps_by_hand():
    bugs = {"carry": 0.5, "borrow": 0.5, "sign": 0.5, "stop": 0.5}
    assert [*map(example, bugs)] == ["7+8=5", "12-5=13", "3-7=4", "22,7#1"]
    responses = ["7+8=5;5-9=4#4", "7+8=15;15-9=7#7", "2+5=7#7", "2+5=8#8", "12,8#4", "12,8;8,4#4", "9-9=0;0+1=1"]
    table = describe_steps(responses, bugs)
    assert table["steps"].to_dict() == {"carry": 2, "borrow": 1, "sign": 1, "stop": 2, NONE: 5}
    assert table["by it"].dropna().to_dict() == {"carry": 0.5, "borrow": 0.0, "sign": 1.0, "stop": 0.5}
    assert table["right"].to_dict() == {"carry": 0.5, "borrow": 0.0, "sign": 0.0, "stop": 0.5, NONE: 0.8}
    assert describe_steps(["7+8=5"], {}).to_dict("index")[NONE]["right"] == 0.0


def test_accuracy_by_wrong_steps_by_hand():
    sums = [
        Query(prompt, "", "sum", {"metadata": {"source_dataset": "chain_sum"}})
        for prompt in ("2+5=", "7+8=", "7+8-9=", "9+9-9+3-13=")
    ]
    asked = pd.DataFrame({"prompt": [query.prompt for query in sums] + ["1+1="], "correct": [1.0, 0.0, 1.0, 0.0, 1.0]})
    table = by_wrong_steps(sums, {"T = 1": asked}, ["carry", "borrow", "sign"], most=2)
    assert table["queries"].to_dict() == {0: 1, 1: 1, 2: 2} and table["T = 1"].to_dict() == {0: 1.0, 1: 0.0, 2: 0.5}
