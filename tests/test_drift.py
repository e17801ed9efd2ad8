"""Drift of a profile: shares by hand, the correction for noise where the truth is known, equal compute by hand."""

import dataclasses
from math import comb
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from repro.engine import snapshots
from repro.engine.measure import measure_profile
from repro.engine.snapshots import BASE, list_checkpoints
from repro.experiments.drift import measure as measuring
from repro.experiments.drift import summary as study
from repro.methods.sgpo_rule import Rule
from repro.policy.model import build_qwen2, load_policy, save_policy
from repro.protocol.profile import ProfileError, Source, hash_policy, hash_queries
from repro.settings import load
from repro.stats.correlation import spearman
from repro.stats.intervals import over_seeds
from repro.tasks.tokenizer import build_tokenizer

SETTINGS = load(scale="smoke")
STATISTICS = SETTINGS.statistics
RULE = Rule(smallest=2, largest=8, unsolvable_share=0.25)
TITLES = {BASE: "base policy", "grpo": "GRPO", "once": "Once", "twice": "Twice"}


def profiles(initial, after, again, samples=4, **where) -> pd.DataFrame:
    where = {"arm": "grpo", "seed": 0, "step": 8} | where
    counts = {"initial": initial, "after": after, "again": again}
    return pd.DataFrame({**where, "query": range(len(initial)), "family": "sum", "samples": samples, **counts})


def drawn(p_first_Q, p_now_Q, samples, rng, **where) -> pd.DataFrame:
    counts = (rng.binomial(samples, p_Q) for p_Q in (p_first_Q, p_now_Q, p_now_Q))
    return profiles(*counts, samples=samples, **where)


def test_two_profiles_by_hand():
    first, second = np.array([4, 4, 3, 1, 0, 0, 2, 1]), np.array([4, 3, 4, 3, 0, 1, 2, 0])
    # sizes: 2 2 2 4 8 8 2 4 and 2 2 2 2 8 4 2 8; classes: T T L L U U L L and T L T L U L L U
    found = study.compare(first / 4, second / 4, RULE)
    assert found.pop("spearman") == pytest.approx(pd.Series(first).corr(pd.Series(second), method="spearman"))
    assert found == {
        "size_changed": 3 / 8,
        "doublings": 3 / 8,
        "class_changed": 4 / 8,
        "rose": 1 / 8,
        "fell": 0,
        "dropped_wrongly": 2 / 8,
        "kept_wrongly": 2 / 8,
    }
    assert np.isnan(spearman(np.ones(3), np.arange(3)))


def test_the_signal_of_a_class_is_without_bias():
    size = 3
    for p in (0.0, 0.2, 0.7, 1.0):
        weights = [comb(2 * size, s) * p**s * (1 - p) ** (2 * size - s) for s in range(2 * size + 1)]
        signals = [
            study._signals(np.ones(1, int), np.array([s]), size)["signal_learnable"] for s in range(2 * size + 1)
        ]
        assert np.dot(weights, signals) == pytest.approx(1 - p**size - (1 - p) ** size)
    none = study._signals(np.array([0]), np.array([3]), size)
    assert np.isnan(none["signal_unsolvable"]) and none["signal_trivial"] == pytest.approx(1 - 2 / 20)


def test_noise_is_taken_out_and_resampling_alone_has_no_excess():
    rng, n = np.random.default_rng(0), 4000
    p_Q = rng.beta(0.7, 0.7, n)
    moved_Q = np.where(rng.random(n) < 0.5, p_Q, rng.permutation(p_Q))
    truth = spearman(p_Q, moved_Q)
    base = drawn(p_Q, p_Q, 4, rng, arm=BASE, step=0)
    now = drawn(p_Q, moved_Q, 4, rng).assign(initial=base["initial"])
    summary = study.summarise(pd.concat([base, now]), RULE).set_index("arm")
    assert summary.loc["grpo", "spearman"] < truth - 0.05
    assert summary.loc["grpo", "corrected"] == pytest.approx(truth, abs=0.03)
    assert summary.loc[BASE, "corrected"] == pytest.approx(1, abs=0.02)
    assert (summary.loc[BASE, [f"{name}_excess" for name in study.CHANGES]] == 0).all()
    assert summary.loc["grpo", "class_changed_excess"] == pytest.approx(
        summary.loc["grpo", "class_changed"] - summary.loc[BASE, "class_changed"]
    )


counts = st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=9)


@hypothesis_settings(deadline=None, max_examples=50)
@given(counts)
def test_transitions_lose_no_query_and_agree_with_the_shares(rows):
    table = profiles(*(np.array(column) for column in zip(*rows, strict=True)))
    found = study.transitions(table)
    assert found["share"].sum() == pytest.approx(1)
    chances = found.groupby("before")["chance"].sum(min_count=3).dropna()
    np.testing.assert_allclose(chances, 1)
    changed = found.loc[found["before"] != found["after"], "share"].sum()
    rates = table[["initial", "after", "again"]] / 4
    pair = [study.compare(rates["initial"], rates[name], RULE)["class_changed"] for name in ("after", "again")]
    assert changed == pytest.approx(np.mean(pair))


def curve(arm, seed, flops, accuracy) -> pd.DataFrame:
    steps = [8 * place for place in range(len(flops))]
    columns = {"step": steps, "flops": flops, "accuracy": accuracy, "flops_profile": flops[0], "diverged": False}
    return pd.DataFrame({"arm": arm, "seed": seed, **columns})


def test_equal_steps_and_equal_compute_by_hand():
    once, twice = [10.0, 60.0, 110.0], [10.0, 60.0, 210.0]
    runs = [curve("once", s, once, [0.2, 0.4, 0.6]) for s in (0, 1)]
    runs += [curve("twice", s, twice, [0.2, 0.4, 0.7 + s / 10]) for s in (0, 1)]
    found = study.reprofiled(pd.concat(runs), "once", ["twice"])
    assert found["equal_steps"].tolist() == pytest.approx([0.1, 0.2])
    # at 110 FLOPs `twice` is a third of the way from 0.4 at 60
    assert found["equal_compute"].tolist() == pytest.approx([0.5 - 0.6, 0.4 + 0.4 / 3 - 0.6])
    # until 60 they are one curve; then 50 FLOPs with means (0.4 + end)/2
    assert found["mean_compute"].tolist() == pytest.approx([-0.05 * 50 / 110, (0.2 / 3 - 0.1) * 50 / 110])
    assert found["flops"].tolist() == pytest.approx([21 / 11] * 2)
    assert found["profile_share"].tolist() == pytest.approx([10 / 210] * 2)
    means = over_seeds(found, "arm", STATISTICS).loc["twice"]
    assert means[["equal_steps", "equal_compute"]].tolist() == pytest.approx([0.15, -0.25 / 3])
    assert means["equal_steps_low"] == pytest.approx(0.15 - 12.706205 * 0.05)  # t of two seeds
    with pytest.raises(ValueError, match="twice has no run with seed 1, once has"):
        study.reprofiled(pd.concat(runs[:3]), "once", ["twice"])
    assert study.reprofiled(pd.concat(runs), "once", []).columns.tolist() == ["arm", "seed", *study.REPROFILED]


def test_which_arm_profiles_once_and_which_again_comes_from_the_settings():
    assert study.profiled_once_and_again(load(scale="cpu")) == ("sgpo", ["sgpo-again-1", "sgpo-again-3"])
    plain = SETTINGS.model_copy(update={"drift": SETTINGS.drift.model_copy(update={"arms": ["grpo"]})})
    assert study.profiled_once_and_again(plain) == (None, [])
    sgpo = SETTINGS.arm("sgpo").model_copy(update={"plan": ("sgpo", {"largest": 16})})
    changed = SETTINGS.model_copy(update={"arms": SETTINGS.arms | {"sgpo": sgpo}})
    assert study.rule_of(changed) == Rule(2, 16, 0.25) and study.profiled_once_and_again(changed)[1] == []
    assert study.rule_of(plain) == Rule(2, 32, 0.25)


def test_the_end_of_training_against_resampling():
    rng = np.random.default_rng(0)
    p_Q = rng.beta(0.7, 0.7, 60)
    base = [drawn(p_Q, p_Q, 4, rng, arm=BASE, seed=seed, step=0) for seed in (0, 1)]
    now = [drawn(p_Q, p_Q**0.3, 4, rng, seed=seed, step=step) for seed in (0, 1) for step in (8, 16)]
    table = pd.concat([*base, *now])
    summary = study.summarise(table, RULE)
    last, first = (summary[summary["step"] == step].set_index("seed") for step in (16, 0))
    end = study.at_the_end(summary, STATISTICS)
    assert end.index.tolist() == list(study.LABELS)
    for name, row in end.iterrows():
        assert row["trained"] == pytest.approx(last[name].mean()) and row["resampled"] == pytest.approx(
            first[name].mean()
        )
        assert row["excess"] == pytest.approx((last[name] - first[name]).mean())
        half = 12.706205 * abs(np.diff(last[name] - first[name]).item()) / 2  # t of two seeds
        assert [row["excess_low"], row["excess_high"]] == pytest.approx([row["excess"] - half, row["excess"] + half])


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Settings of eight queries, an untrained policy with its profile, workers that are this process; `score` lets
    half of the answers pass."""
    torch.manual_seed(3)
    save_policy(build_qwen2(hidden=16, layers=1, heads=2, max_length=192), build_tokenizer(), tmp_path / "model")
    task = SETTINGS.task.model_copy(update={"train_queries": 8, "evaluation_queries": 8})
    engine = SETTINGS.engine.model_copy(update={"max_new_tokens": 6, "steps": 4})
    drift = SETTINGS.drift.model_copy(update={"arms": ["grpo"], "samples": 2, "snapshot_every": 4})
    settings = SETTINGS.model_copy(update={"task": task, "engine": engine, "drift": drift})
    monkeypatch.setattr(measuring, "map_in_workers", lambda function, items, _: [function(item) for item in items])
    monkeypatch.setattr(
        "repro.engine.sample.score", lambda texts, valid_N, queries_N: np.array([len(t) % 2 for t in texts], float)
    )
    pool, (model, tokenizer) = measuring._pool(settings), load_policy(tmp_path / "model", "cpu")
    source = Source(hash_policy(tmp_path / "model"), hash_queries(pool), 1.0, 6, 0)
    for seed in settings.seeds:
        own = dataclasses.replace(source, seed=seed)
        profile = measure_profile(model, tokenizer, pool, own, samples=6, batch_rollouts=64)
        profile.save(tmp_path / "profile", f"seed-{seed}")
    return SimpleNamespace(settings=settings, folder=tmp_path, model=model, pool=pool)


def checkpoints_of(small) -> list[snapshots.Checkpoint]:
    drift = small.settings.drift
    folders = {("grpo", seed): small.folder / f"grpo-{seed}" for seed in small.settings.seeds}
    return list_checkpoints(small.settings, small.folder / "model", drift.arms, folders, drift.snapshot_every)


def test_all_that_training_keeps_is_listed_or_every_so_many_steps():
    drift = SETTINGS.drift.model_copy(update={"arms": ["sgpo"], "snapshot_every": 2})
    fidelity = SETTINGS.fidelity.model_copy(update={"arms": ["sgpo"], "snapshot_every": 3})
    engine = SETTINGS.engine.model_copy(update={"steps": 6})
    settings = SETTINGS.model_copy(update={"drift": drift, "fidelity": fidelity, "engine": engine, "seeds": [7]})
    for every, steps in ((None, [2, 3, 4, 6]), (2, [2, 4, 6]), (3, [3, 6])):
        points = list_checkpoints(
            settings, measuring.Path("model"), ["sgpo"], {("sgpo", 7): measuring.Path("run")}, every
        )
        assert [(point.arm, point.seed, point.step) for point in points] == [
            (BASE, 7, 0),
            *(("sgpo", 7, step) for step in steps),
        ]
        assert points[0].weights is None
        assert points[-1].weights.parts == ("run", "step-6.safetensors")


def test_checkpoints_are_profiled_twice_beside_the_first_profile(small):
    from safetensors.torch import save_file

    points = checkpoints_of(small)
    assert [(point.arm, point.seed, point.step) for point in points] == [
        *((BASE, seed, 0) for seed in small.settings.seeds),
        *(("grpo", seed, 4) for seed in small.settings.seeds),
    ]
    with pytest.raises(FileNotFoundError, match=r"step-4.safetensors does not exist: run the same again"):
        measuring.measure_drift(points, small.folder / "profile", 2, workers=1)
    for point in points[len(small.settings.seeds) :]:
        point.weights.parent.mkdir(parents=True, exist_ok=True)
        save_file({name: value.clone() + 0.3 for name, value in small.model.state_dict().items()}, point.weights)
    table = measuring.measure_drift(points, small.folder / "profile", 2, workers=1)
    pd.testing.assert_frame_equal(table, measuring.measure_drift(points, small.folder / "profile", 2, workers=1))
    assert len(table) == len(points) * 8 and table["query"].tolist() == [*range(8)] * len(points)
    assert table["family"].tolist()[:8] == [query.family for query in small.pool]
    rates = table.groupby("arm")[["initial", "after", "again"]].mean() / 2
    assert ((rates > 0) & (rates < 1)).all(axis=None)
    assert (table["after"] != table["again"]).any() and (table["after"] != table["initial"]).any()
    correct_Q_K = measuring.Profile.load(small.folder / "profile", "seed-1").correct_Q_K
    for arm, own in table[table["seed"] == 1].groupby("arm"):
        assert own["initial"].tolist() == correct_Q_K[:, :2].sum(1).tolist()
        if arm == BASE:  # samples of the profile that no plan uses
            assert own[["after", "again"]].T.to_numpy().tolist() == [
                correct_Q_K[:, 2:4].sum(1).tolist(),
                correct_Q_K[:, 4:].sum(1).tolist(),
            ]


def test_a_profile_of_something_else_is_refused(small):
    points = checkpoints_of(small)[:1]
    with pytest.raises(ProfileError, match="a profile of 6 samples a query has no first 9"):  # three times as many
        measuring.measure_drift(points, small.folder / "profile", 3, workers=1)
    hotter = small.settings.model_copy(update={"engine": small.settings.engine.model_copy(update={"temperature": 0.7})})
    with pytest.raises(ProfileError, match=r"temperature 1\.0, training samples with 0\.7"):
        measuring.measure_drift([dataclasses.replace(points[0], settings=hotter)], small.folder / "profile", 2, 1)
