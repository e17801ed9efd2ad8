"""Queries in words: what they ask, what demonstrators make of them, and a language model tuned on them and trained."""

import random
import re

import pandas as pd
import pytest
import torch
import yaml
from transformers import LlamaConfig, LlamaForCausalLM

from repro import paths
from repro import settings as settings_module
from repro.engine.backends import load as loading
from repro.policy import base
from repro.policy.model import load_policy, save_policy
from repro.policy.vocabulary import cut, tokenizer_of
from repro.runs import design as designs
from repro.runs import panels as running
from repro.runs import policies
from repro.stats import panels
from repro.tasks import lists, stories
from repro.tasks.demonstrations import Mixture, demonstrate
from repro.tasks.queries import END_OF_STEPS, draw_family, make_pools, verify

BUGS = {"carry": 0.6, "double": 0.7, "ends": 0.7, "front": 0.65}
STORY = {"source_dataset": "stories", "start": 9, "who": "Tom", "what": "cups"}
LIST = {"source_dataset": "lists", "start": ["a", "b", "c"]}


def queries(dataset, steps, size=40):
    options = {"min_steps": steps, "max_steps": steps}
    return draw_family(dataset, dataset, options, size, 0, set())


@pytest.mark.parametrize("wordy", [False, True])
def test_steps_and_their_wrong_procedures_by_hand(wordy):
    story = STORY | {"steps": [("find", 7), ("double", 0), ("half", 0), ("lose", 2)]}
    both = {"carry": 1.0, "double": 1.0}
    for bugs, answer in (({}, "14"), ({"carry": 1.0}, "4"), ({"double": 1.0}, "7"), (both, "2")):
        assert stories.work(story, bugs, wordy, random.Random(0))[1] == answer
    given = LIST | {"steps": [("front", "d"), ("ends", ""), ("back", "e"), ("second", "")]}
    for bugs, answer in (({}, "c, b, d, e"), ({"front": 1.0}, "d, c, a, e"), ({"ends": 1.0}, "a, b, c, e")):
        assert lists.work(given, bugs, wordy, random.Random(0))[1] == answer


@pytest.mark.parametrize(("dataset", "steps"), [("stories", 3), ("lists", 3)])
def test_right_demonstrations_verify_and_styles_are_right_equally_often(dataset, steps):
    rng, drawn = random.Random(1), queries(dataset, steps)
    assert len({query.prompt for query in drawn}) == 40 and drawn == queries(dataset, steps)
    for query in drawn:
        for mixture in (Mixture(0, 0, 0, 0), Mixture(0, 1, 0, 0), Mixture(1, 0, 0, 0)):
            text = demonstrate(query, mixture, rng)
            assert verify(text, query) == 1.0 == verify(f"{END_OF_STEPS}{query.answer}", query)
            assert verify(text + "1", query) == verify(query.answer, query) == 0.0
    for equation, result in re.findall(r"([\d+*/-]+)=(\d+)", demonstrate(drawn[0], Mixture(0, 1, 0, 0), rng)):
        assert eval(equation) == int(result)
    right, size = {}, 4000
    for name, mixture in {"terse": Mixture(0, 0, 0, 0, BUGS), "wordy": Mixture(0, 1, 0, 0, BUGS)}.items():
        shown = [rng.choice(drawn) for _ in range(size)]
        right[name] = sum(verify(demonstrate(query, mixture, rng), query) for query in shown) / size
    assert abs(right["terse"] - right["wordy"]) < 0.04 and max(right.values()) < 0.4  # most are wrong


def test_a_vocabulary_is_what_is_written_and_its_rows_are_the_models():
    text = "Tom has 12 cups. # 12"
    source, own = tokenizer_of([text, "Ann has 3 hats"]), tokenizer_of([text])
    ids = own(text)["input_ids"]
    assert own.decode(ids) == text and len(own) == 9 and own.convert_ids_to_tokens(ids)[2:5] == ["Ġ", "1", "2"]
    config = LlamaConfig(vocab_size=len(source), hidden_size=8, num_attention_heads=2, num_hidden_layers=1)
    model = LlamaForCausalLM(config)
    whole = model(torch.tensor([source(text)["input_ids"]])).logits
    there = [source.eos_token_id, *source.convert_tokens_to_ids(own.convert_ids_to_tokens(range(1, len(own))))]
    own_logits = cut(model, source, own)(torch.tensor([ids])).logits
    torch.testing.assert_close(own_logits, whole[..., there])
    with pytest.raises(ValueError, match="'Ann' is several tokens to the language model"):
        cut(model, own, tokenizer_of(["Ann"]))


def test_the_small_policy_has_no_letters_for_words():
    family = {"story": {"dataset": "stories", "share": 1.0}}
    settings = settings_module.load()
    task = settings.task.model_dump() | {"families": family, "harder": None}
    with pytest.raises(ValueError, match=r"no letters for stories: name another as policy\.source"):
        type(settings).model_validate(settings.model_dump() | {"task": task})


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A design of one run on a small random model, in folders of its own."""
    for name in ("PANELS", "SCRATCH", "HERE", "BUILD", "BASE_POLICIES"):
        monkeypatch.setattr(paths, name, tmp_path / name)
    monkeypatch.setattr(paths, "DESIGN", tmp_path / "design.yaml")
    raw = yaml.safe_load((paths.ROOT / "runs" / "design.yaml").read_text())
    bed = raw["beds"]["words"]
    bed["task"] |= {"train_queries": 12, "evaluation_queries": 6, "pretraining_queries": 300}
    bed["task"]["harder"]["queries"] = 2
    bed["policy"] |= {"source": str(tmp_path / "source"), "rank": 2, "steps": 4, "batch": 8, "group_size": 2}
    bed["engine"] |= {"steps": 2, "rollouts_per_step": 16, "minibatch": 16, "max_new_tokens": 6, "checkpoint_every": 1}
    bed["engine"]["adapter"] = {"rank": 2, "layers": 1}
    panel = {"question": "?", "arms": ["grpo"], "policies": ["words"], "seeds": [0]}
    own = {"settings": {"fidelity": {"arms": []}, "drift": {"arms": []}}, "policies": {"words": {"bed": "words"}}}
    paths.DESIGN.write_text(yaml.safe_dump({**own, "beds": {"words": bed}, "groups": {}, "panels": {"words": panel}}))
    design = designs.load()
    settings = designs.settings_of(design, next(designs.cells(design)))
    mixture, rng = Mixture(0.1, 0.5, 0, 0, BUGS), random.Random(0)
    shown = make_pools(settings.task).pretraining
    tokenizer = tokenizer_of(query.prompt + demonstrate(query, mixture, rng) for query in 9 * shown)
    torch.manual_seed(0)
    config = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2}
    config |= {"vocab_size": len(tokenizer), "tie_word_embeddings": True, "max_position_embeddings": 256}
    save_policy(LlamaForCausalLM(LlamaConfig(**config)), tokenizer, tmp_path / "source")
    monkeypatch.setattr(loading.assemble, "__defaults__", (tmp_path / "cache",))
    monkeypatch.setattr(policies, "FEWER", 1)
    return design, settings


def test_tuning_that_was_cut_off_goes_on_with_the_same_bits(place, tmp_path, monkeypatch):
    _, settings = place
    pools, source = make_pools(settings.task), tmp_path / "source"
    monkeypatch.setattr(base, "EACH", 2)
    whole, _, history = base.tune(settings.policy, pools, source, tmp_path / "a.pt", lambda line: None)
    kept = tmp_path / "b.pt"

    def stop(line):
        raise KeyboardInterrupt

    monkeypatch.setattr("repro.policy.pretrain.KEEP", 2)
    with pytest.raises(KeyboardInterrupt):
        base.tune(settings.policy, pools, source, kept, stop)
    resumed, _, again = base.tune(settings.policy, pools, source, kept, lambda line: None)
    pd.testing.assert_frame_equal(again, history)
    assert all(torch.equal(one, other) for one, other in zip(whole.parameters(), resumed.parameters(), strict=True))
    assert len(history) == 4


def test_a_language_model_is_tuned_put_together_trained_and_kept(place):
    design, _ = place
    of = list(designs.cells(design))
    assert designs.of_language_model(design, "words") and list(running.missing(design, of)) == of
    assert running.make(design, of, say=lambda line: None) == 1
    assert running.keep(design, of, say=lambda line: None) == of and list(running.missing(design, of)) == []
    curves, steps = panels.load("curves", "words"), panels.load("steps", "words")
    assert curves["step"].tolist() == [0, 2] and {"harder", "greedy"} <= set(curves) and len(steps) == 2
    folder = paths.BASE_POLICIES / "words"
    assert len(pd.read_parquet(folder / panels.BASE)) == 8 and (folder / loading.ADAPTERS).stat().st_size < 30_000
    whole = policies.policy_of(design, of[0])
    model, tokenizer = load_policy(whole, dtype="bfloat16")
    assert str(model.dtype) == "torch.bfloat16" and len(tokenizer) == model.config.vocab_size
    assert policies.policy_of(design, of[0]) == whole
