"""What the report on verl computes: intervals, what counts as agreement; and the same step by TRL's own loop."""

import importlib.util
from dataclasses import replace
from importlib import metadata
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from repro.experiments.parity import summary as study
from repro.experiments.parity.compared import adam_move
from repro.policy.model import SHIPPED
from repro.settings import Arm, Settings, load
from repro.settings.arm import EngineChanges

SETTINGS = load(scale="smoke")
needs_trl = [
    pytest.mark.trl,
    pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is missing: `make extra-trl` installs it"),
]


def on_trl(test):
    for mark in needs_trl:
        test = mark(test)
    return test


def evaluations(shift: float) -> pd.DataFrame:
    rows = [
        {"arm": "a", "engine": engine, "seed": seed, "step": step, "accuracy": 0.1 * step + 0.01 * seed + more * step}
        for engine, more in (("embedded", 0.0), ("verl", shift))
        for seed in range(5)
        for step in (0, 1, 2)
    ]
    return pd.DataFrame(rows)


def test_curves_are_compared_with_the_scatter_between_seeds():
    close = study.curves(evaluations(0.005), 0.95)
    assert close["step"].tolist() == [1, 2] and close["within"].all()
    assert close["difference"].tolist() == pytest.approx([0.005, 0.01])
    half = stats.t.ppf(0.975, 8) * 0.01 * np.sqrt(2.5 * 2 / 5)
    assert close["half_width"].tolist() == pytest.approx([half, half])
    apart = study.curves(evaluations(0.1), 0.95)
    assert not apart["within"].any()


def batches(**changes) -> pd.DataFrame:
    row = dict(arm="a", same_plan=True, same_verdicts=True, same_finished=True, same_rollouts=True, rollouts=8)
    row |= dict(selected=4, tokens=40, other_tokens=0, weight_difference=0.0, loss_difference=1e-8)
    return pd.DataFrame([row | dict(gradient_error=1e-6, optimiser_error=1e-6, step_error=1e-3) | changes])


@pytest.mark.parametrize(
    "change",
    [
        {"same_plan": False},
        {"same_rollouts": False, "gradient_error": np.nan},
        {"other_tokens": 1},
        {"weight_difference": 1e-3},
        {"gradient_error": 1e-3},
        {"step_error": 2e-2},
    ],
)
def test_whatever_differs_is_no_agreement(change):
    assert study.batches_agree(batches()).all()
    errors = ("loss_difference", "gradient_error", "optimiser_error", "step_error")
    unknown = ("other_tokens", "weight_difference", *errors)
    assert study.batches_agree(batches(selected=0, **dict.fromkeys(unknown, np.nan))).all()  # no signal on either side
    assert not study.batches_agree(batches(**change)).any()


@on_trl
def test_arms_that_trl_refuses_are_those_that_profile_again():
    from step_on_trl import arms_for_trl

    again = [name for name, arm in SETTINGS.all_arms.items() if arm.profile and arm.profile.again]
    reasons = arms_for_trl(SETTINGS)
    assert {name for name, reason in reasons.items() if reason} == {*again} and again
    assert all("cannot profile the queries during training" in reasons[name] for name in again)


@on_trl
def test_another_trl_or_none_is_one_sentence(monkeypatch):
    from repro.trl.version import UnsupportedTRL, require_trl

    for other in ("1.13.0", "2.0.0"):
        monkeypatch.setattr("repro.trl.version.version", lambda name, other=other: other)
        with pytest.raises(UnsupportedTRL, match=rf"TRL {other} is installed, but .* of TRL 1\.14 to 1\.16: `"):
            require_trl()
    monkeypatch.setattr("repro.trl.version.version", lambda name: "1.14.2")
    require_trl()
    monkeypatch.setattr("repro.trl.version.version", lambda name: "1.15.0")
    monkeypatch.setattr("repro.trl.version.find_spec", lambda name: None)
    with pytest.raises(UnsupportedTRL, match=r"TRL 1\.15\.0 computes its loss with Triton alone, which is not"):
        require_trl()
    monkeypatch.setattr("repro.trl.version.version", lambda name: "1.17.0")
    with pytest.warns(UserWarning, match=r"tested with TRL 1\.14 to 1\.16; 1\.17\.0 is installed"):
        require_trl()
    monkeypatch.setattr("repro.trl.version.version", lambda name: metadata.version("no-such-package"))
    with pytest.raises(UnsupportedTRL, match=r"^TRL is not installed: `make extra-trl` adds TRL 1\.16$"):
        require_trl()


KL = SETTINGS.arm("grpo-kl-decay").model_copy(update={"engine": EngineChanges(kl=0.1)})
OTHER_LOSS = SETTINGS.arm("d3s").model_copy(update={"objective": SETTINGS.arm("gspo").objective})


def test_adams_move_is_its_formula():
    """Of one weight: w ← w − lr (λw + m̂ / (√v̂ + ε))."""
    options = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.5}
    weight, m, v = 2.0, 0.0, 0.0
    for step, gradient in enumerate((0.3, -1.0), 1):
        m, v = 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient**2
        weight -= 0.1 * (0.5 * weight + m / (1 - 0.9**step) / ((v / (1 - 0.99**step)) ** 0.5 + 1e-8))
    moved_P = adam_move(torch.tensor([2.0]), [torch.tensor([0.3]), torch.tensor([-1.0])], options)
    assert float(moved_P) == pytest.approx(weight - 2.0, rel=1e-5)


def with_arm(name: str, arm: Arm) -> Settings:
    return SETTINGS.model_copy(update={"arms": {**SETTINGS.arms, name: arm}})


@on_trl
def test_trls_own_loop_makes_the_step_of_the_embedded_engine(tmp_path):
    """A KL term; a filter that refills, and draws; entropies and a choice of tokens; groups of several sizes. What
    differs is seen: another objective in the gradient, another random stream in the plan and the rollouts."""
    from step_on_trl import TRLSide

    from repro.experiments.parity.recorded import record

    settings = with_arm("kl", KL)
    side = TRLSide(settings, 0, SHIPPED, None, tmp_path)
    recorded = {arm: record(arm, 0, settings, SHIPPED, None) for arm in ("kl", "zvf-cost-aware", "d3s", "sgpo")}
    table = pd.DataFrame([side.replay(each) for each in recorded.values()]).set_index("arm")
    assert study.batches_agree(table).all(), table.T.to_string()
    assert table["selected"].tolist()[:3] == [32, 32, 8] and table["gradient_error"].min() > 0
    other = TRLSide(with_arm("d3s", OTHER_LOSS), 0, SHIPPED, None, tmp_path).replay(recorded["d3s"])
    assert other["same_rollouts"] and other["weight_difference"] == 0.0 and other["gradient_error"] > 0.1
    moved = TRLSide(settings, 1, SHIPPED, None, tmp_path).replay(recorded["zvf-cost-aware"])
    assert not moved["same_plan"] and not moved["same_rollouts"] and "loss_difference" not in moved


@on_trl
def test_trl_decays_neither_biases_nor_norms(tmp_path):
    """The one place where the step is another than the embedded engine's: HF's Trainer leaves them out of the decay."""
    from step_on_trl import TRLSide

    from repro.experiments.parity.recorded import flat, record

    side, recorded = TRLSide(SETTINGS, 0, SHIPPED, None, tmp_path), record("grpo-kl-decay", 0, SETTINGS, SHIPPED, None)
    row = side.replay(recorded)
    assert row["loss_difference"] < study.TOLERANCE and 1e-3 < row["optimiser_error"] < study.STEP_TOLERANCE
    engine = SETTINGS.engine_of("grpo-kl-decay")
    undecayed = [(p if p.ndim == 1 else torch.zeros_like(p)) for p in side.base.parameters()]
    gap_P = (
        len(recorded.parts)
        * engine.learning_rate
        * engine.weight_decay
        * flat(SimpleNamespace(parameters=lambda: undecayed))
    )
    explained = replace(recorded, move_P=recorded.move_P + gap_P)
    assert side.replay(explained)["step_error"] < 1e-3


@on_trl
@pytest.mark.slow
@pytest.mark.parametrize("group", dict.fromkeys(arm.group for arm in SETTINGS.all_arms.values()))
def test_every_arm_steps_on_trl_as_on_the_embedded_engine(group, tmp_path):
    """Under weight decay TRL's optimiser makes another step: see above."""
    from step_on_trl import TRLSide, arms_for_trl

    from repro.experiments.parity.recorded import record

    side = TRLSide(SETTINGS, 0, SHIPPED, None, tmp_path)
    able = [arm for arm, reason in arms_for_trl(SETTINGS).items() if not reason and SETTINGS.arm(arm).group == group]
    table = pd.DataFrame([side.replay(record(arm, 0, SETTINGS, SHIPPED, None)) for arm in able]).set_index("arm")
    decays = [arm for arm in able if SETTINGS.engine_of(arm).weight_decay > 0]
    print(table[["gradient_error", "optimiser_error", "step_error"]].max().to_string())
    table.loc[decays, "optimiser_error"] = 0.0
    agree = study.batches_agree(table)
    assert agree.all(), table[~agree].T.to_string()
