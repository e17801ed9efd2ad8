"""The evaluation of real models: its figures against closed forms, its tables, and a tiny model from end to end."""

import json
import time

import numpy as np
import pandas as pd
import pytest

from repro.data.prepare import prepare
from repro.data.verify import Verdict
from repro.engine.backends import BackendError, Samples
from repro.engine.backends.load import TINY, ModelMissing, build_tiny, fetch
from repro.engine.backends.transformers import Transformers
from repro.evaluation import __main__ as command
from repro.evaluation.__main__ import Prompted, fitting
from repro.evaluation.measures import per_question, powers_up_to, summary
from repro.evaluation.model import fingerprint, model_folder, stops_of
from repro.evaluation.questions import Question, QuestionsMissing, load_questions, prompt_ids
from repro.evaluation.run import Sampling, by_answer, evaluate
from repro.evaluation.store import OtherEvaluation, Store

QUESTIONS = [Question(f"toy-{i}", "toy", f"{i}?", str(i), ({"role": "user", "content": f"{i}?"},)) for i in range(5)]
PROMPTS = [[i] for i in range(5)]
TEXTS_Q_K = [["0", "x"], ["1", "1"], ["2", "long"], ["x", "x"], ["4", "x"]]  # what `Script` says
CHUNKED = Sampling(2, 4, 1.0, 7, chunk=4)  # two questions at a time


class Letters:
    """A tokenizer of code points."""

    eos_token_id = 0
    chat_template = None

    def __call__(self, texts, add_special_tokens):
        assert add_special_tokens == (self.chat_template is None)
        return {"input_ids": [[ord(letter) for letter in text] for text in texts]}


class Script:
    """A backend that says what is written down, response k to question q; it fails at the question `fails_at`."""

    name, tokenizer = "script", Letters()

    def __init__(self, fails_at=None):
        self.fails_at, self.asked, self.seeds = fails_at, [], []

    def sample(self, prompts_Q, samples, *, max_new_tokens, temperature, stop, seed, top_p):
        assert (temperature, stop, top_p) == (1.0, [0], 1.0)
        places = [prompt[0] for prompt in prompts_Q]
        if self.fails_at in places:
            raise BackendError("pulled the plug")
        self.asked += places
        self.seeds.append(seed)
        texts_N = [text for place in places for text in TEXTS_Q_K[place][:samples]]
        ids_N = [np.arange(1, len(text) + 1) for text in texts_N]
        return Samples(ids_N, ids_N, np.array([len(text) < max_new_tokens for text in texts_N]), texts_N, 1.0)


class Equal:
    """A verifier for which only the very text is right."""

    def check_all(self, responses_N, truths_N):
        return [
            Verdict("equal" if one == other else "different") for one, other in zip(responses_N, truths_N, strict=True)
        ]


EQUAL = by_answer(Equal())


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


def test_each_response_is_held_against_its_own_question():
    """In chunks of two questions, with a seed for each chunk; the table keeps every response."""
    backend, again = Script(), Script()
    found = evaluate(backend, QUESTIONS, PROMPTS, EQUAL, CHUNKED, stops=[0])
    assert found.questions["successes"].tolist() == [1, 2, 1, 0, 1] and found.questions["samples"].unique() == [2]
    assert found.questions["truncated"].tolist() == [0, 0, 1, 0, 0] and found.summary["accuracy"] == 0.5
    assert found.responses["response"].tolist()[:4] == ["0", "x", "1", "1"]
    assert found.responses["sample"].tolist() == [0, 1] * 5
    assert len(set(backend.seeds)) == 3 and found.seconds["sample"] == 3.0
    evaluate(again, QUESTIONS, PROMPTS, EQUAL, CHUNKED, stops=[0])
    assert again.seeds == backend.seeds


def test_a_chunk_is_verified_while_the_next_is_sampled():
    """The verifier waits until the backend has been asked for the next chunk, the last one aside."""
    backend = Script()

    class Waits(Equal):
        def check_all(self, responses_N, truths_N):
            ahead, until = min(3, len(judged) + 2), time.monotonic() + 20
            while len(backend.seeds) < ahead:
                assert time.monotonic() < until, "the next chunk is not sampled meanwhile"
                time.sleep(0.01)
            judged.append(len(responses_N))
            return super().check_all(responses_N, truths_N)

    judged = []
    found = evaluate(backend, QUESTIONS, PROMPTS, by_answer(Waits()), CHUNKED, stops=[0])
    assert judged == [4, 4, 2] and found.questions["successes"].tolist() == [1, 2, 1, 0, 1]


def test_an_interrupted_evaluation_goes_on_and_ends_the_same(tmp_path):
    """Whole chunks survive, the rest is sampled with the seeds that it would have had; what is complete is read."""
    whole = evaluate(Script(), QUESTIONS, PROMPTS, EQUAL, CHUNKED, stops=[0])
    facts, folder = {"model": "m", "stops": [0]}, tmp_path / "toy"
    with pytest.raises(BackendError):
        evaluate(Script(fails_at=4), QUESTIONS, PROMPTS, EQUAL, CHUNKED, stops=[0], store=Store(folder, facts))
    resumed = Script()
    found = evaluate(resumed, QUESTIONS, PROMPTS, EQUAL, CHUNKED, stops=[0], store=Store(folder, facts))
    assert resumed.asked == [4] and found.seconds["sample"] == 3.0 and found.summary == whole.summary
    pd.testing.assert_frame_equal(found.responses, whole.responses)
    assert sorted(path.name for path in folder.iterdir()) == ["evaluation.json", "responses.parquet"]
    again = evaluate(None, QUESTIONS, PROMPTS, EQUAL, CHUNKED, stops=[0], ks=[2], store=Store(folder, facts))
    pd.testing.assert_frame_equal(again.responses, whole.responses)
    assert again.summary["pass"] == {"2": found.summary["pass"]["2"]} and again.seconds == {}
    with pytest.raises(OtherEvaluation, match=r"toy holds another evaluation, with model 'm' instead of 'n'"):
        Store(folder, facts | {"model": "n"})


def test_a_prompt_that_does_not_fit_is_named():
    asked = {"toy": Prompted(QUESTIONS[:2], [[1] * 4, [1] * 3])}
    assert fitting(asked, 7, None) == fitting(asked, 7, 11) == 11
    with pytest.raises(BackendError, match=r"toy-0: a prompt of 4 tokens .* lower --max-new-tokens to 6 or less"):
        fitting(asked, 7, 10)


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
    with pytest.raises(QuestionsMissing, match="not in the format"):
        load_questions(tmp_path / "other.parquet")


def test_a_tiny_model_from_end_to_end(prepared):
    """Through the transformers engine, twice the same."""
    model, tokenizer = build_tiny()
    questions, sampling = load_questions(prepared), Sampling(3, 6, 1.0, 0, top_p=0.9)
    engine, prompts_Q = Transformers(model=model.eval(), tokenizer=tokenizer), prompt_ids(tokenizer, questions, {})
    one, two = (evaluate(engine, questions, prompts_Q, EQUAL, sampling, stops=[0, 9]) for _ in range(2))
    pd.testing.assert_frame_equal(one.responses, two.responses)
    assert len(one.responses) == 9 and one.responses["response_tokens"].between(1, 6).all()
    cut = one.responses[~one.responses["finished"]]
    assert (cut["response_tokens"] == 6).all() and one.summary["truncated"] == len(cut) / 9


@pytest.mark.verl
def test_the_command_line(prepared, tmp_path, capsys):
    """A tiny model, math-verify, and every file that it says it writes; again it only reads them."""
    pytest.importorskip("math_verify", reason="make extra-verl")
    folder, out = fetch(TINY, cache=tmp_path / "models"), tmp_path / "out"
    options = ["--engine", "transformers", "--dtype", "float32", "--samples", "2", "--max-new-tokens", "5"]
    assert command.main([str(folder), str(prepared), "--out", str(out), *options, "--top-p", "0.9"]) == 0
    printed = capsys.readouterr().out
    assert "aime25: avg@2" in printed
    facts = json.loads((out / "aime25" / "evaluation.json").read_text())
    assert (facts["engine"], facts["samples"], facts["stops"], facts["top_p"]) == ("transformers", 2, [0], 0.9)
    assert json.loads((out / "aime25" / "summary.json").read_text())["questions"] == 3
    assert len(pd.read_parquet(out / "aime25" / "responses.parquet")) == 6
    assert len(pd.read_parquet(out / "aime25" / "questions.parquet")) == 3
    assert {"sample", "verify"} == json.loads((out / "timings" / "aime25" / "seconds.json").read_text()).keys()
    assert command.main([str(folder), str(prepared), "--out", str(out), *options, "--top-p", "0.9"]) == 0
    assert capsys.readouterr().out == printed
    assert command.main([str(folder), str(prepared), "--out", str(out), *options]) == 1
    assert "holds another evaluation, with top_p 0.9 instead of 1.0" in capsys.readouterr().err


def test_a_checkpoint_in_shards_says_what_merges_it(tmp_path):
    actor = tmp_path / "global_step_16" / "actor"
    (actor / "huggingface").mkdir(parents=True)
    (actor / "model_world_size_2_rank_0.pt").touch()
    (actor / "huggingface" / "config.json").write_text("{}")
    for given in (tmp_path, actor.parent, actor):
        with pytest.raises(ModelMissing, match=r"model_merger merge --backend fsdp .*; then evaluate MERGED"):
            model_folder(str(given), "float32")
    (actor / "huggingface" / "model.safetensors").touch()
    assert model_folder(str(actor / "huggingface"), "float32") == actor / "huggingface"


def test_every_end_of_a_response_and_a_change_of_weights_are_known(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_text("1")
    assert stops_of(tmp_path, Letters()) == [0]
    (tmp_path / "config.json").write_text('{"eos_token_id": [8, 9]}')
    assert stops_of(tmp_path, Letters()) == [0, 8, 9]
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 0, 8]}')
    assert stops_of(tmp_path, Letters()) == [0, 7, 8, 9]
    before = fingerprint(tmp_path)
    assert before == fingerprint(tmp_path)
    (tmp_path / "model.safetensors").write_text("22")
    assert before != fingerprint(tmp_path)
