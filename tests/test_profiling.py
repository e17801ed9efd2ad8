"""Profiles: drawn, kept and read back whole, refused in a sentence where they are not; what they cost and say."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from repro.engine.measure import measure_profile
from repro.experiments.profile import cost, measure
from repro.experiments.profile import summary as study
from repro.methods.group_sizes.posterior import misfiled
from repro.methods.group_sizes.rule import binomial
from repro.methods.plans.sgpo import sgpo
from repro.methods.plans.uniform import uniform
from repro.methods.sgpo_rule import CLASSES, Rule, classes, parameters
from repro.policy.flops import FlopCounter
from repro.policy.model import build_qwen2, save_policy
from repro.protocol.profile import Profile, ProfileError, Source, hash_policy, hash_queries
from repro.runs.make import profile_seconds
from repro.settings import load
from repro.tasks.queries import Query, make_pools
from repro.tasks.tokenizer import build_tokenizer

SETTINGS = load(scale="smoke")
SOURCE = Source("a" * 64, "b" * 64, temperature=1.0, max_new_tokens=8, seed=3)
RULE = Rule(smallest=2, largest=32, unsolvable_share=0.25)
MARGIN = 0.05


def make_profile(successes_Q, samples=4, source=SOURCE) -> Profile:
    """The first samples succeed; the sample k of query q has 1 + q + k tokens, every prompt 3 + q."""
    place_K, query_Q = np.arange(samples), np.arange(len(successes_Q))
    correct_Q_K = place_K < np.array(successes_Q)[:, None]
    return Profile(source, correct_Q_K, 1 + query_Q[:, None] + place_K, 3 + query_Q)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return build_qwen2(hidden=16, layers=1, heads=2, max_length=64).eval()


@pytest.fixture(scope="module")
def queries():
    sizes = dict(train_queries=7, evaluation_queries=7, pretraining_queries=7)
    return make_pools(SETTINGS.task.model_copy(update=sizes)).train


def sampled(model, queries, source=SOURCE, samples=4, **options) -> Profile:
    options = {"batch_rollouts": 8} | options
    return measure_profile(model, build_tokenizer(), queries, source, samples=samples, **options)


def test_a_profile_is_what_was_kept(tmp_path):
    profile = make_profile([0, 2, 4])
    profile.save(tmp_path, "seed-3")
    read = Profile.load(tmp_path, "seed-3").check(SOURCE)
    for name in ("correct_Q_K", "response_tokens_Q_K", "prompt_tokens_Q"):
        assert (getattr(read, name) == getattr(profile, name)).all()
    assert read.source == SOURCE and read.samples == 4
    assert read.rate_Q.tolist() == [0.0, 0.5, 1.0]
    known = read.first(3).known()
    assert known.successes_Q.tolist() == [0, 2, 3] and known.samples_Q.tolist() == [3, 3, 3]


BROKEN = {
    "query 1 lacks sample 2": lambda table: table.drop(index=6),
    "a sample is there twice": lambda table: pd.concat([table, table.iloc[:1]]),
    "cannot be read (KeyError('sample'))": lambda table: table.drop(columns="sample"),
}


@pytest.mark.parametrize("said", BROKEN)
def test_a_broken_table_is_refused_in_a_sentence(tmp_path, said):
    make_profile([0, 2, 4]).save(tmp_path, "seed-3")
    path = tmp_path / "seed-3.parquet"
    BROKEN[said](pd.read_parquet(path)).to_parquet(path)
    with pytest.raises(ProfileError) as error:
        Profile.load(tmp_path, "seed-3")
    assert said in str(error.value) and str(path) in str(error.value) and "dvc repro profile" in str(error.value)
    assert "\n" not in str(error.value)


def test_half_a_file_and_a_missing_one_are_refused(tmp_path):
    make_profile([0, 2, 4]).save(tmp_path, "p")
    path = tmp_path / "p.parquet"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"p.parquet cannot be read .*: delete it and run `dvc repro profile`"):
        Profile.load(tmp_path, "p")
    with pytest.raises(FileNotFoundError, match=r"q.parquet is not there yet: run `dvc repro profile` first"):
        Profile.load(tmp_path, "q")
    with pytest.raises(ProfileError, match="4 samples a query has no first 5"):
        make_profile([1]).first(5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"policy": "c" * 64}, "is of another policy than those trained here (aaaaaaaaaaaa…, not cccccccccccc…)"),
        ({"temperature": 0.8}, "sampled with temperature 1.0, training samples with 0.8"),
    ],
)
def test_a_profile_of_something_else_is_refused(change, said):
    with pytest.raises(ProfileError) as error:
        make_profile([1]).check(replace(SOURCE, **change))
    assert said in str(error.value) and "`dvc repro profile`" in str(error.value)
    assert make_profile([1]).check(replace(SOURCE, seed=99)).samples == 4


def test_hashes_tell_policies_and_pools_apart(tmp_path, model, queries):
    save_policy(model, build_tokenizer(), tmp_path / "a")
    save_policy(model, build_tokenizer(), tmp_path / "b")
    assert hash_policy(tmp_path / "a") == hash_policy(tmp_path / "b")
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-6
    save_policy(model, build_tokenizer(), tmp_path / "b")
    assert hash_policy(tmp_path / "a") != hash_policy(tmp_path / "b")
    assert hash_queries(queries) != hash_queries(queries[::-1])
    assert hash_queries(queries) != hash_queries([replace(queries[0], answer="x"), *queries[1:]])


def test_what_is_drawn_depends_on_the_source_and_not_on_the_batch(model, queries):
    lengths = sampled(model, queries).response_tokens_Q_K
    assert (sampled(model, queries, batch_rollouts=100).response_tokens_Q_K == lengths).all()
    assert (lengths <= 8).all() and (lengths >= 1).all()
    prompts = [len(ids) for ids in build_tokenizer()([query.prompt for query in queries])["input_ids"]]
    assert sampled(model, queries).prompt_tokens_Q.tolist() == prompts
    others = [
        sampled(model, queries, replace(SOURCE, seed=4)),
        sampled(model, queries, replace(SOURCE, temperature=1.0 + 1e-6)),  # which alone would change next to nothing
        sampled(model, queries, stream=1),
        sampled(model, queries, samples=8).first(4),
    ]
    for other in others:
        assert (other.response_tokens_Q_K != lengths).mean() > 0.2


def test_the_stage_measures_every_seed(tmp_path, model, queries, monkeypatch):
    save_policy(model, build_tokenizer(), tmp_path / "model")
    sizes = SETTINGS.profile.model_copy(update={"samples": 4})
    engine = SETTINGS.engine.model_copy(update={"max_new_tokens": 8})
    settings = SETTINGS.model_copy(update={"profile": sizes, "engine": engine, "seeds": [0, 5]})
    jobs = measure.list_jobs(settings, tmp_path / "model", queries)
    assert [job.name for job in jobs] == ["seed-0", "seed-5"]
    monkeypatch.setattr(
        measure, "map_in_workers", lambda one, items, _: [one(pickle.loads(pickle.dumps(i))) for i in items]
    )
    profiles, seconds = measure.measure_all(jobs, 2)
    assert list(profiles) == list(seconds) == [job.name for job in jobs]
    again, _ = measure.measure_one(jobs[1])
    assert (again.response_tokens_Q_K == profiles["seed-5"].response_tokens_Q_K).all()
    measure.save(tmp_path / "out", tmp_path / "model", profiles)
    measure.save_seconds(tmp_path / "timings", jobs, {"seed-0": 4.0, "seed-5": 8.0}, 2)
    by_seed = measure.load_profiles(tmp_path / "out", [0, 5])
    assert by_seed[0].samples == 4
    assert by_seed[0].source.policy == hash_policy(tmp_path / "model")
    assert by_seed[5].source.queries == hash_queries(queries)
    assert measure.load_flops(tmp_path / "out") == FlopCounter.of(model)
    assert profile_seconds(tmp_path / "timings") == 1.5 and profile_seconds(tmp_path) == 0.0


def test_costs_by_hand():
    flops = FlopCounter(matmul_parameters=100, layers=1, width=0)  # 200 a token
    profile = make_profile([0, 1])  # responses 1 2 3 4 and 2 3 4 5, prompts 3 and 4
    ledger = cost.profile_ledger(profile, flops)
    assert (ledger.rollouts, ledger.generated_tokens, ledger.profile_tokens) == (8, 24, 24)
    assert ledger.flops == ledger.flops_profile == 200 * (3 + 4 + 24 - 8)  # the last token of a response is not read
    # Groups of 2: prompts once each, responses 1 2 and 2 3 less their last tokens; then three times the second group,
    # one right and one wrong; the first has no signal, so no gradient.
    step = 200 * (7 + 8 - 4) / 4 + 3 * 200 * (5 + 2 * 4) / 4
    assert cost.training_flops(profile, flops, group=2) == step
    assert cost.price(profile, flops, group=2) == pytest.approx(200 * 23 / 8 / step)
    table = cost.costs({0: profile}, flops, 2, 2, rollouts_per_step=10)
    assert table.index.tolist() == ["profile, K = 4", "profile, K = 2", "a training step"]
    assert table["steps"].tolist() == pytest.approx([200 * 23 / (10 * step), 200 * (7 + 8 - 4) / (10 * step), 1.0])


def three_seeds(successes_S_Q, samples=4):
    """({seed: profile}, queries) of named queries, whose hash the profiles hold."""
    queries = [Query(f"{q}=", str(q), "even" if q % 2 == 0 else "odd", {}) for q in range(len(successes_S_Q[0]))]
    source = replace(SOURCE, queries=hash_queries(queries))
    return {seed: make_profile(row, samples, source) for seed, row in enumerate(successes_S_Q)}, queries


def test_a_query_is_described_by_its_own_samples_and_judged_by_the_others():
    profiles, queries = three_seeds([[4, 2, 0], [4, 3, 1], [3, 2, 0]])
    table = study.describe_queries(profiles, queries, RULE, used=3, confidence=0.9)
    first = table[table["seed"] == 0]
    assert first["successes"].tolist() == [3, 2, 0] and first["class"].tolist() == list(CLASSES)
    assert first["size"].tolist() == [2, 2, 32] and first["all_successes"].tolist() == [4, 2, 0]
    assert first["true_successes"].tolist() == [7, 5, 1] and set(first["true_samples"]) == {8}
    assert (table["low"] < table["mean"]).all() and (table["mean"] < table["high"]).all()
    alpha, beta = first[["alpha", "beta"]].iloc[0]
    assert first["mean"].tolist() == pytest.approx([(alpha + s) / (alpha + beta + 3) for s in (3, 2, 0)])
    with pytest.raises(ProfileError, match="other queries"):
        study.describe_queries(profiles, queries[::-1], RULE, 3, 0.9)
    with pytest.raises(ProfileError, match="pass those of two seeds"):
        study.stacked({0: profiles[0]})


def test_wrong_classes_are_counted_and_predicted():
    """Seeds of a Beta population: the prediction is within its error of the count; with an endless truth it would be
    the theory's `misfiled`."""
    rng, K, seeds = np.random.default_rng(0), 8, 5
    p_Q = rng.beta(0.6, 0.9, 4000)
    profiles, queries = three_seeds([rng.binomial(32, p_Q) for _ in range(seeds)], samples=32)
    for profile in profiles.values():
        rng.permuted(profile.correct_Q_K, axis=1, out=profile.correct_Q_K)
    table = study.describe_queries(profiles, queries, RULE, K, 0.95)
    filed = study.class_shares(table, MARGIN, SETTINGS.statistics)
    assert filed["share"].sum() == pytest.approx(1.0) and filed["predicted_share"].sum() == pytest.approx(1.0)
    for name in ("share", "wrong"):
        assert (filed[name] - filed[f"predicted_{name}"]).abs().max() < 0.012
    assert study.covered(table, 0.95).mean() == pytest.approx(0.955, abs=0.012)
    families = study.families(table, SETTINGS.statistics)
    assert families["queries"].tolist() == [2000, 2000, 4000]
    assert families.loc["all", "trivial"] == filed.loc["trivial", "share"]
    endless = pd.DataFrame({"seed": [0], "samples": [K], "true_samples": [4000], "alpha": [0.6], "beta": [0.9]})
    theory = misfiled(K, 0.6, 0.9, MARGIN)
    shares = study._predicted(endless, MARGIN)
    for place, name in ((0, "trivial"), (2, "unsolvable")):
        assert shares[place] == pytest.approx([theory[name], theory[f"{name}_wrongly"]], abs=3e-4)


def test_covered_counts_the_noise_of_the_truth():
    """p as good as known to be ½: those counts are covered that leave less than 2.5% on either side."""
    constant = {"samples": 10, "successes": 5, "alpha": 1e8, "beta": 1e8, "true_samples": 10}
    table = pd.DataFrame({"true_successes": np.arange(11)}).assign(**constant)
    below = np.cumsum(binomial(0.5, 10))
    expected = [below[s] > 0.025 and (s == 0 or below[s - 1] < 0.975) for s in range(11)]
    assert study.covered(table, 0.95).tolist() == expected
    assert sum(expected) == 7  # 2 … 8


def test_examples_span_the_difficulties():
    profiles, queries = three_seeds([[4, 2, 0, 1], [4, 2, 0, 1], [4, 2, 0, 1]])
    table = study.describe_queries(profiles, queries, RULE, 4, 0.95)
    found = study.examples(table, each=1)
    assert found.loc["always solved", "prompt"] == "0=" and found.loc["never solved", "prompt"] == "2="
    assert found.loc["half the time", "successes"] == [2, 2, 2] and found.loc["sometimes", "sizes"] == [4, 4, 4]


def test_the_rule_is_the_arms_plan():
    assert Rule.of({"largest": 16, "curriculum": False}) == Rule(2, 16, 0.25)
    assert Rule.of({}) == RULE and parameters(uniform, {})["group_size"] == 8
    assert parameters(sgpo, {"drop_trivial": False})["drop_trivial"] is False
    assert RULE.kept(np.array([0.0, 0.1, 1.0])).tolist() == [0.25, 1.0, 0.0]
    assert RULE.sizes(np.array([0.0, 0.1, 0.4, 1.0])).tolist() == [32, 10, 3, 2]
    assert classes(np.array([1.0, 0.99, 0.0, 0.01])).tolist() == [0, 1, 2, 1]
    assert classes(np.array([0.95, 0.9, 0.05, 0.06]), margin=0.05).tolist() == [0, 1, 2, 1]
