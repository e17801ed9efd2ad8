"""One's own questions on verl: truths that a response can match, and no question on both sides."""

import json
import random

import pandas as pd
import pytest

from repro.data.clean import normalise
from repro.settings import SettingsError
from repro.verl import questions


def verls(truth: object) -> dict:
    return {"prompt": [{"role": "user", "content": "a"}], "reward_model": {"ground_truth": truth}}


@pytest.mark.parametrize("truth", ["", "  ", "}", "\\boxed{}", "####", ["4"], {"a": "4"}])
def test_a_truth_that_no_response_can_match_is_refused_with_its_row(truth, tmp_path):
    path = tmp_path / "mine.parquet"
    pd.DataFrame([verls(truth), verls(truth)]).to_parquet(path)
    with pytest.raises(
        SettingsError, match=r"mine\.parquet, row 0: `reward_model\.ground_truth` is text or a number \("
    ):
        questions.load(str(path))
    assert len(questions.load(str(path), ours=False)) == 2  # a reward function of one's own may want a list
    lines = tmp_path / "mine.jsonl"
    lines.write_text(json.dumps({"prompt": "a", "answer": truth}))
    with pytest.raises(SettingsError, match=r"mine\.jsonl, line 1: "):
        questions.load(str(lines))


def test_a_byte_order_mark_and_gsm8ks_working_are_read(tmp_path):
    working = "Ann has 3*4=<<3*4=12>>12.\n#### 1,012"
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"prompt": "a", "answer": working}), encoding="utf-8-sig")
    pd.DataFrame([verls(working)]).to_parquet(tmp_path / "mine.parquet")
    for file in (path, tmp_path / "mine.parquet"):
        assert questions.load(str(file))[0]["reward_model"]["ground_truth"] == "1012"
        assert questions.load(str(file), ours=False)[0]["reward_model"]["ground_truth"] == working


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_question_in_several_rows_is_on_one_side(shuffled, tmp_path, capsys):
    """Also in other typesetting, and with another answer."""
    wordings = ("What is ${i} + 1$?", "what is {i}+1", "What is $\\displaystyle {i}+1$?")
    rows = [(each.format(i=i), i + place) for i in range(40) for place, each in enumerate(wordings)]
    random.Random(0).shuffle(rows) if shuffled else None
    lines = [json.dumps({"prompt": prompt, "answer": answer}) for prompt, answer in rows]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines))
    train, held_out = questions.split(questions.load(str(tmp_path / "mine.jsonl")))
    sides = [{normalise(row["prompt"][0]["content"]) for row in side} for side in (train, held_out)]
    assert (len(train), len(held_out), len(sides[0]), len(sides[1])) == (114, 2, 38, 2) and not sides[0] & sides[1]
    assert capsys.readouterr().out == "4 of 120 rows ask a held-out question once more and are left out\n"
    with pytest.raises(SettingsError, match="the data ask one question"):
        questions.split(train[:1] * 3)


def test_different_answers_repeats_and_held_out_questions_that_are_trained_on_are_told(tmp_path, capsys):
    rows = [("1 + 1?", 2), ("1+1?", "2"), ("2 + 2?", 4), ("$2 + 2$?", 5), ("3 + 3?", 6)]
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": prompt, "answer": answer}) for prompt, answer in rows))
    kept = questions.checked(str(path))
    assert [(row["extra_info"]["index"], row["reward_model"]["ground_truth"]) for row in kept] == [
        *((0, "2"), (1, "2"), (2, "6"))
    ]
    told = capsys.readouterr().out
    assert "2 of 5 rows repeat a question, in this or other typesetting" in told
    assert "2 rows ask a question with different answers, as rows [2, 3] do" in told
    assert len(questions.checked(str(path), ours=False)) == 5  # a reward function of one's own knows more
    assert "different answers" not in capsys.readouterr().out
    questions.tell_of_trained(kept, kept[2:])
    assert capsys.readouterr().out.startswith("1 of 1 held-out questions are trained on too")
    path.write_text("\n".join(path.read_text().splitlines()[2:4]))
    with pytest.raises(SettingsError, match="every question has different answers: mend them"):
        questions.checked(str(path))


def test_a_question_is_all_that_its_user_says():
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    assert questions.asked({"prompt": [{"role": "system", "content": "s"}, *said]}) == "a\nc"
    assert questions.asked({"prompt": [{"role": "system", "content": "s"}]}) == "s"
