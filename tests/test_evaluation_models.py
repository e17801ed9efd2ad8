"""The evaluation of real models: its figures against closed forms, its tables, and a tiny model from end to end."""

import json

import numpy as np
import pandas as pd
import pytest

from repro.data.prepare import prepare
from repro.data.verify import Verdict
from repro.engine.backends import BackendError, Samples, why_not_vllm
from repro.engine.backends.transformers import Transformers
from repro.evaluation import __main__ as command
from repro.evaluation.measures import per_question, powers_up_to, summary
from repro.evaluation.questions import Question, QuestionsMissing, load_questions, prompt_ids
from repro.evaluation.run import Sampling, evaluate
from repro.language_model.load import TINY, build_tiny, fetch

QUESTIONS = [Question(f"toy-{i}", "toy", f"{i}?", str(i), ({"role": "user", "content": f"{i}?"},)) for i in range(5)]


class Letters:
    """A tokenizer of code points."""

    eos_token_id = 0
    chat_template = None

    def __call__(self, texts, add_special_tokens):
        assert not add_special_tokens
        return {"input_ids": [[ord(letter) for letter in text] for text in texts]}


class Script:
    """A backend that says what is written down: response k to question q, in the order of the questions."""

    name, tokenizer = "script", Letters()

    def __init__(self, texts_Q_K):
        self.texts_Q_K, self.asked, self.seeds = texts_Q_K, 0, []

    def sample(self, prompts_Q, samples, *, max_new_tokens, temperature, stop, seed):
        part = self.texts_Q_K[self.asked : self.asked + len(prompts_Q)]
        self.asked += len(prompts_Q)
        self.seeds.append(seed)
        texts_N = [text for texts in part for text in texts]
        ids_N = [np.arange(1, len(text) + 1) for text in texts_N]
        return Samples(ids_N, ids_N, np.array([len(text) < max_new_tokens for text in texts_N]), texts_N, 1.0)


class Equal:
    """A verifier for which only the very text is right."""

    def check_all(self, responses_N, truths_N):
        return [
            Verdict("equal" if one == other else "different") for one, other in zip(responses_N, truths_N, strict=True)
        ]


def responses_of(successes_Q, samples: int, truncated_Q, tokens: int = 3) -> pd.DataFrame:
    rows = [
        (question.id, k, k < right, k >= cut, tokens)
        for question, right, cut in zip(QUESTIONS, successes_Q, truncated_Q, strict=True)
        for k in range(samples)
    ]
    return pd.DataFrame(rows, columns=["id", "sample", "correct", "finished", "response_tokens"])


def test_figures_are_their_closed_forms():
    """avg@n is the mean share; pass@2 is 1 - C(n-c, 2)/C(n, 2); truncation is over responses, the error over
    questions."""
    table = per_question(QUESTIONS, responses_of([0, 1, 2, 3, 4], 4, [4, 0, 0, 2, 0]))
    found = summary(table)
    assert found["accuracy"] == pytest.approx(0.5) and found["samples"] == 4 and found["questions"] == 5
    assert found["pass"]["1"] == pytest.approx(found["accuracy"])
    assert found["pass"]["2"] == pytest.approx(np.mean([0, 1 - 3 / 6, 1 - 1 / 6, 1, 1]))
    assert found["pass"]["4"] == pytest.approx(4 / 5)
    assert found["truncated"] == pytest.approx(6 / 20) and found["response_tokens"] == 3
    assert found["standard_error"] == pytest.approx(np.std([0, 0.25, 0.5, 0.75, 1], ddof=1) / 5**0.5)
    assert powers_up_to(32) == [1, 2, 4, 8, 16, 32] and powers_up_to(12) == [1, 2, 4, 8, 12] and powers_up_to(1) == [1]


def test_figures_need_every_question_equally_often():
    responses = responses_of([0] * 5, 4, [0] * 5)
    with pytest.raises(ValueError, match="1 questions have no responses, toy-4"):
        per_question(QUESTIONS, responses[responses["id"] != "toy-4"])
    with pytest.raises(ValueError, match="from 3 to 4 samples"):
        summary(per_question(QUESTIONS, responses.iloc[1:]))


def test_each_response_is_held_against_its_own_question(monkeypatch):
    """In chunks of two questions, with a seed for each chunk; the table keeps every response."""
    monkeypatch.setattr("repro.evaluation.run.CHUNK_RESPONSES", 4)
    backend = Script([["0", "x"], ["1", "1"], ["2", "long"], ["x", "x"], ["4", "x"]])
    found = evaluate(backend, QUESTIONS, Equal(), Sampling(2, 4, 1.0, 7))
    assert found.questions["successes"].tolist() == [1, 2, 1, 0, 1] and found.questions["samples"].unique() == [2]
    assert found.questions["truncated"].tolist() == [0, 0, 1, 0, 0] and found.summary["accuracy"] == 0.5
    assert found.responses["response"].tolist()[:4] == ["0", "x", "1", "1"]
    assert found.responses["sample"].tolist() == [0, 1] * 5
    assert len(set(backend.seeds)) == 3 and found.seconds["sample"] == 3.0
    again = Script(backend.texts_Q_K)
    evaluate(again, QUESTIONS, Equal(), Sampling(2, 4, 1.0, 7))
    assert again.seeds == backend.seeds


def test_a_prompt_that_does_not_fit_is_named():
    with pytest.raises(BackendError, match=r"toy-0: a prompt of 4 tokens .* of up to 7 are more than the 10"):
        evaluate(Script([]), QUESTIONS, Equal(), Sampling(1, 7, 1.0, 0), longest=10)


def test_the_chat_template_is_the_tokenizers_own():
    class Chat(Letters):
        chat_template = "a template"

        def apply_chat_template(self, messages, *, tokenize, add_generation_prompt, thinking):
            assert not tokenize and add_generation_prompt
            return f"<{messages[0]['content']}|{thinking}>"

    ids_Q = prompt_ids(Chat(), QUESTIONS[:1], {"thinking": False})
    assert "".join(map(chr, ids_Q[0])) == "<0?|False>"
    assert "".join(map(chr, prompt_ids(Letters(), QUESTIONS[:1], {})[0])) == "0?\n\n"


@pytest.fixture
def prepared(tmp_path):
    """A prepared data set of three questions."""
    rows = [{"id": str(i), "problem": f"What is ${i}$?", "answer": str(i)} for i in range(3)]
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepare(["aime25"], tmp_path / "data", files={"aime25": path})
    return tmp_path / "data" / "aime25.parquet"


def test_questions_are_read_as_they_were_prepared(prepared, tmp_path):
    questions = load_questions(prepared)
    assert [question.answer for question in questions] == ["0", "1", "2"]
    assert questions[1].question == "What is $1$?" and questions[1].messages[0]["content"].startswith("What is $1$?")
    with pytest.raises(QuestionsMissing, match=r"holds aime25: `python -m repro.data prepare amc23"):
        load_questions(prepared.parent / "amc23.parquet")
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(QuestionsMissing, match="not of the format"):
        load_questions(tmp_path / "other.parquet")


def test_a_tiny_model_from_end_to_end(prepared):
    """Through the transformers engine, twice the same."""
    model, tokenizer = build_tiny()
    sampling = Sampling(3, 6, 1.0, 0)
    one, two = (
        evaluate(Transformers(model=model.eval(), tokenizer=tokenizer), load_questions(prepared), Equal(), sampling)
        for _ in range(2)
    )
    pd.testing.assert_frame_equal(one.responses, two.responses)
    assert len(one.responses) == 9 and one.responses["response_tokens"].between(1, 6).all()
    cut = one.responses[~one.responses["finished"]]
    assert (cut["response_tokens"] == 6).all() and one.summary["truncated"] == len(cut) / 9


@pytest.mark.verl
@pytest.mark.parametrize("engine", ["transformers", pytest.param("vllm", marks=pytest.mark.vllm)])
def test_the_command_line(engine, prepared, tmp_path, capsys):
    """A tiny model, math-verify, and every file that it says it writes."""
    pytest.importorskip("math_verify", reason="make extra-verl")
    if engine == "vllm" and (reason := why_not_vllm()):
        pytest.skip(reason)
    folder, out = fetch(TINY, cache=tmp_path / "models"), tmp_path / "out"
    options = ["--engine", engine, "--dtype", "float32", "--samples", "2", "--max-new-tokens", "5"]
    assert command.main([str(folder), str(prepared), "--out", str(out), *options]) == 0
    assert "aime25: avg@2" in capsys.readouterr().out
    facts = json.loads((out / "evaluation.json").read_text())
    assert (facts["engine"], facts["samples"], facts["data"]) == (engine, 2, ["aime25"])
    assert json.loads((out / "aime25" / "summary.json").read_text())["questions"] == 3
    assert len(pd.read_parquet(out / "aime25" / "responses.parquet")) == 6
    assert {"sample", "verify"} == json.loads((out / "timings" / "aime25" / "seconds.json").read_text()).keys()


@pytest.mark.parametrize("options", [["--samples", "0"], ["--k", "9", "--samples", "8"], ["--temperature", "0"]])
def test_impossible_options_are_refused(options, capsys):
    with pytest.raises(SystemExit):
        command.parse(["model", "data.parquet", "--out", "out", *options])
    assert "error: --" in capsys.readouterr().err


def test_a_missing_file_is_one_sentence(tmp_path, capsys):
    assert command.main(["model", str(tmp_path / "x.parquet"), "--out", str(tmp_path)]) == 1
    assert "repro: there is no " in capsys.readouterr().err
