"""The base policy's groups, counted by hand."""

import numpy as np
import pandas as pd
import pytest
import torch

from repro import paths
from repro import settings as settings_module
from repro.engine.groups import GREEDY, LOWER
from repro.experiments.base_policy.groups import by_temperature, describe_families, describe_groups, sentence
from repro.policy import pretrain, shipped
from repro.policy.lean import Lean
from repro.policy.model import GOLDEN, build_qwen2
from repro.tasks.demonstrations import Mixture
from repro.tasks.queries import Query
from repro.tasks.tokenizer import SYMBOLS


def test_the_regime_is_counted_right():
    rollouts = pd.DataFrame(
        {
            "query": [0, 0, 0, 0, 1, 1, 1, 1],
            "family": ["x"] * 4 + ["y"] * 4,
            "group": [0, 0, 1, 1] * 2,
            "correct": [1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
            "response_tokens": [2, 6, 3, 3, 5, 10, 1, 4],
            "entropy": [0.5] * 8,
        }
    )
    groups = describe_groups(rollouts)
    assert groups["signal"].tolist() == [True, False, False, False]
    assert groups["length_ratio"].tolist() == [3.0, 1.0, 2.0, 4.0]
    families = describe_families(rollouts)
    assert families["success"].to_dict() == {"x": 0.75, "y": 0.0, "all": 0.375}
    assert families["groups_without_signal"].to_dict() == {"x": 0.5, "y": 1.0, "all": 0.75}
    assert families.loc["x", "tokens_right"] == pytest.approx(8 / 3) and families.loc["all", "length_ratio"] == 2.5
    assert families["share"].to_dict() == {"x": 0.5, "y": 0.5, "all": 1.0} and np.isnan(
        families.loc["y", "tokens_right"]
    )


def test_accuracy_by_temperature_by_hand():
    columns = {"query": [0, 0, 1, 1], "response_tokens": [2, 4, 6, 8], "finished": [True, True, True, False]}
    sampled = pd.DataFrame({**columns, "correct": [1.0, 0.0, 0.0, 0.0]})
    cooler = pd.DataFrame({**columns, "correct": [1.0, 1.0, 0.0, 0.0], "temperature": LOWER})
    greedy = cooler.iloc[[0, 2]].assign(correct=[1.0, 1.0], temperature=GREEDY)
    table = by_temperature(sampled, pd.concat([greedy, cooler]), 1.0)
    assert table["name"].tolist() == ["greedy", "T = 0.6", "T = 1"] and table["samples"].tolist() == [1, 2, 2]
    assert table["accuracy"].tolist() == [1.0, 0.5, 0.25] and table["truncated"].tolist() == [0.0, 0.25, 0.25]
    assert sentence(table) == "The base policy scores 0.250 at T = 1, 0.500 at T = 0.6 and 1.000 greedily"


def test_shipped_weights_are_taken_where_these_settings_made_them_and_only_there(monkeypatch):
    monkeypatch.setattr(shipped, "make_base_policy", lambda policy, pools: ("pre-trained", policy))
    settings = settings_module.load(scale="cpu")
    model, history = shipped.base_policy(settings)
    assert len(history) == settings.policy.steps and history["loss"].iloc[-1] < history["loss"].iloc[0]
    assert sum(p.numel() for p in model.parameters()) > 200_000
    fresh = settings.model_copy(update={"policy": settings.policy.model_copy(update={"shipped": False})})
    wider = settings.model_copy(update={"policy": settings.policy.model_copy(update={"hidden": 128})})
    for other in (fresh, wider):
        assert shipped.base_policy(other) == ("pre-trained", other.policy)
    turned = settings.task.model_copy(update={"families": dict(reversed(settings.task.families.items()))})
    assert shipped.fitting(settings.model_copy(update={"task": turned})) is None  # its queries are others
    described = settings.policy.model_copy(update={"describe_groups": 1})
    assert shipped.fitting(settings.model_copy(update={"policy": described})) == shipped.SHIPPED
    small = shipped.fitting(settings_module.load(scale="smoke"))
    assert small == shipped.FOLDERS["smoke"] and (small / "model.safetensors").exists()
    for folder, policy in ((shipped.SHIPPED, "i"), (GOLDEN, "a")):  # i has the settings of params.yaml
        weights = (paths.BASE_POLICIES / policy / "model.safetensors").read_bytes()
        assert (folder / "model.safetensors").read_bytes() == weights


def test_the_packed_pass_has_the_loss_and_gradient_of_transformers():
    torch.manual_seed(0)
    model = build_qwen2(hidden=32, layers=2, heads=4, key_value_heads=1, max_length=12)  # shorter than most texts
    pairs = [("1+2=", "#3$"), ("7+8-9=", "#6$"), ("9-1=", "9-1=8#8$"), ("3-7=", "3=3-7=4;4+7=3#4$")]
    pairs += [("g18,48=", "48,18;18,12;12,6#6$"), ("31*25=", "31*20=620;31*5=155#775$")]
    loss = pretrain._accumulate_gradients(Lean(model), pairs)
    packed = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    losses = []
    for prompt, response in pairs:  # one text at a time, so that nothing is packed or padded
        ids_1_L = torch.tensor([[1, *(SYMBOLS.index(symbol) for symbol in prompt + response)]])
        log_p_L_V = model(input_ids=ids_1_L).logits[0, len(prompt) : -1].log_softmax(-1)
        losses.append(-log_p_L_V.gather(1, ids_1_L[0, 1 + len(prompt) :, None]).flatten())
    expected = torch.cat(losses).mean()
    expected.backward()
    assert loss == pytest.approx(float(expected.detach()), rel=1e-6)
    for own, parameter in zip(packed, model.parameters(), strict=True):
        torch.testing.assert_close(own, parameter.grad, rtol=1e-4, atol=1e-7)


def test_the_first_steps_show_no_bugs(monkeypatch):
    seen, shown = [], pretrain.demonstrate
    monkeypatch.setattr(pretrain, "demonstrate", lambda *given: seen.append(given[1].bugs) or shown(*given))
    mixture = Mixture(0.0, 0.0, 0.0, 0.0, bugs={"sign": 1.0})
    query = Query("3-7=", "-4", "sum-2", {"metadata": {"source_dataset": "chain_sum"}})
    model = build_qwen2(hidden=8, layers=1, heads=2, max_length=32)
    pretrain.pretrain(model, [query], mixture, steps=5, batch=2, learning_rate=1e-3, seed=0, clean=0.6)
    assert seen == [{}] * 6 + [{"sign": 1.0}] * 4
