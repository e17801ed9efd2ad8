"""A language model is trained by the engine of every other run: its queries, its responses, a panel."""

import re

import pytest
import yaml

from repro import paths
from repro import settings as settings_module
from repro.engine.sample import sample
from repro.experiments.language_model import one_step
from repro.experiments.language_model import train as training
from repro.experiments.language_model.queries import TRAINING_SUMS, draw_pools
from repro.runs import audit as auditing
from repro.runs import design as designs
from repro.runs import panels as running
from repro.settings import SettingsError
from repro.settings.text import read_mapping
from repro.stats import panels
from repro.tasks.queries import END_OF_STEPS, verify

SMALL = {
    "task": {"train_queries": 9, "evaluation_queries": 4},
    "language_model": {"source": "tiny", "terms": [2]},
    "policy": {"describe_groups": 1, "group_size": 2},
    "engine": {"workers": 1, "steps": 2, "rollouts_per_step": 16, "minibatch": 8, "max_new_tokens": 4, "kl_probe": 2},
    "evaluation": {"budgets": 1, "budget_gflops": 1.0, "generation_gflops": 0.3, "samples": 1, "final_samples": 2},
    "fidelity": {"arms": []},
    "drift": {"arms": []},
}
PANEL = {"question": "?", "arms": ["grpo", "d1s-c"], "policies": ["tiny"], "seeds": [0], "few_shot": True}


@pytest.fixture(scope="module")
def settings():
    return settings_module.parse(settings_module.merge(read_mapping(paths.PARAMS), SMALL))


def test_no_query_is_in_both_pools_and_each_kind_has_its_share(settings):
    pools = draw_pools(settings)
    assert len(pools.train) == 9 and len(pools.evaluation) == 4
    families = [query.family for query in pools.evaluation]
    assert families == ["sum of 2 terms"] * 2 + [one_step.FAMILY] * 2
    assert not {query.prompt for query in pools.train} & {query.prompt for query in pools.evaluation}
    assert draw_pools(settings) == pools


def test_the_engines_verifier_reads_the_format_of_the_examples(settings):
    for query in draw_pools(settings).train:
        examples = TRAINING_SUMS if query.family.startswith("sum") else one_step.EXAMPLES
        assert query.prompt.startswith(examples) and END_OF_STEPS not in query.prompt.removeprefix(examples)
        assert verify(f" working {END_OF_STEPS}{query.answer}", query) == 1.0
        assert verify(f" working {END_OF_STEPS}{int(query.answer) + 1}", query) == 0.0
        assert verify(f" {query.answer}", query) == 0.0
    for shown in re.findall(r"([\d+\-* ]+) = (\d+) #(\d+)\n", TRAINING_SUMS + one_step.EXAMPLES):
        assert eval(shown[0]) == int(shown[1]) == int(shown[2])


def test_answers_of_word_problems_follow_from_their_numbers():
    operations = {template: asked for asked, templates in one_step.TEMPLATES.items() for template in templates}
    for query in one_step.draw_one_step(240, 1):
        question = query.entry["question"]
        numbers = [int(number) for number in re.findall(r"\d+", question)]
        words = re.split(r"\d+", question)
        asked = next(asked for template, asked in operations.items() if re.split(r"\{\w+\}", template) == words)
        expected = {"total": sum(numbers), "left": numbers[0] - numbers[1], "product": numbers[0] * numbers[1]}
        assert int(query.answer) == expected[asked], question
    with pytest.raises(ValueError, match=r"only \d+ of 5000 word problems of one step: lower task.train_queries"):
        one_step.draw_one_step(5000, 0)


def test_a_response_ends_with_its_line(settings):
    folder = training.policy_of(settings)
    model, tokenizer = training.load(folder, settings)
    assert tokenizer("\n")["input_ids"] == [tokenizer.eos_token_id]
    queries = draw_pools(settings).train[:2]
    options = {"samples": 16, "batch_rollouts": 64, "max_new_tokens": 300, "temperature": 1.0, "seed": 0}
    [chunk] = sample(model, tokenizer, queries, **options)
    finished_N = chunk.responses.finished_N.numpy()
    assert finished_N.any() and not any("\n" in text for text in chunk.texts)


def test_runs_of_a_language_model_are_made_kept_and_audited(tmp_path, monkeypatch):
    for name in ("PANELS", "SCRATCH", "HERE", "BUILD"):
        monkeypatch.setattr(paths, name, tmp_path / name)
    monkeypatch.setattr(paths, "DESIGN", tmp_path / "design.yaml")
    monkeypatch.setattr(training, "map_in_workers", lambda function, items, workers: [function(item) for item in items])
    design = {"settings": SMALL, "policies": {"tiny": {}}, "groups": {}, "panels": {"language": PANEL}}
    paths.DESIGN.write_text(yaml.safe_dump(design))
    design = designs.load()
    of = list(designs.cells(design))
    assert running.make(design, of, say=lambda line: None) == 2
    assert running.keep(design, of, say=lambda line: None) == of
    assert list(running.missing(design, of)) == []
    curves = panels.load("curves", "language")
    assert set(curves["run"]) == {cell.name for cell in of} and curves.groupby("run")["step"].max().tolist() == [2, 2]
    assert auditing.audit(design, of, lambda line: None)["bits"].all()
    assert auditing.chosen(design, 2, seed=0) == []  # two at random shall take seconds


def test_an_arm_with_a_profile_is_refused(tmp_path):
    design = {
        "settings": SMALL,
        "policies": {"tiny": {}},
        "groups": {},
        "panels": {"language": {**PANEL, "arms": ["sgpo"]}},
    }
    path = tmp_path / "design.yaml"
    path.write_text(yaml.safe_dump(design))
    with pytest.raises(SettingsError, match=r"panels\.language: arm sgpo profiles each query"):
        designs.load(path)
