"""Arms watched while TRL's own GRPOTrainer trains: the same weights bit for bit, and numbers counted by hand."""

import numpy as np
import pytest
import torch
from test_trl import TOKENIZER, even, trainer_on_trl, weights
from tiny_run import GROUP, ROLLOUTS

from repro.errors import Refused
from repro.methods.choice import shares
from repro.methods.rollouts import Rollouts
from repro.replay import watch

MISSING = "TRL is missing: `make extra-trl` installs it"


def test_a_choice_by_hand():
    batch = Rollouts.from_batch(
        group_N=[0, 0, 1, 1],
        rewards_N=[1, 0, 1, 1],
        advantages_N=[1.0, -1.0, 0.0, 0.0],
        prompt_tokens_N=[2] * 4,
        response_tokens_N=[1] * 4,
    )
    found = shares(batch.take([0, 0, 1, 2, 2], [2.0, 1.0, 1.0, 4.0, 4.0]), 4)
    effective = (3 + 1) ** 2 / (9 + 1)  # of rollouts 0 and 1
    assert found == {
        "drawn": 5 / 4,
        "distinct": 2 / 4,
        "effective": effective / 4,
        "per_distinct": effective / 2,
        "silent": pytest.approx(2 / 5),
        "largest_weight": 4.0,
    }
    assert shares(None, 4) == {"drawn": 0.0, "distinct": 0.0, "effective": 0.0}


def shortest(rollouts, progress, rng):
    """The shortest quarter, the first of it twice, with weights."""
    rows = np.argsort(rollouts.costs_N, kind="stable")[: len(rollouts) // 4]
    return rollouts.take(np.append(rows, rows[0]), np.arange(1.0, len(rows) + 2))


ARMS = {"zvf": "zvf", "shortest": {"samplers": [shortest]}, "cost-aware": "cost-aware"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """(weights, log, table, batches) of the trainer alone, and of one that is watched; batches as the reward function
    saw them: rewards and lengths."""
    pytest.importorskip("trl", reason=MISSING)
    found = []
    for watched in (False, True):
        batches = []

        def reward(completion_ids, prompts, batches=batches, **more):
            rewards, prompts = even(completion_ids), TOKENIZER(prompts)["input_ids"]
            batches.append([np.array(rewards), *(np.array(list(map(len, ids))) for ids in (prompts, completion_ids))])
            return rewards

        trainer = trainer_on_trl(tmp_path_factory.mktemp("run"), None, reward=reward, plain=True)
        seen = watch(trainer, ARMS) if watched else None
        trainer.train()
        log = [entry for entry in trainer.state.log_history if "reward" in entry]
        found.append((weights(trainer), log, seen and seen.table, batches))
    return found


@pytest.mark.trl
def test_watching_changes_neither_a_weight_nor_a_number_of_trls(runs):
    (before, alone, _, theirs), (after, watched, _, ours) = runs
    assert torch.equal(before, after)
    for entry, own in zip(alone, watched, strict=True):
        timed = {"step_time", *(name for name in entry if "profiling" in name)}
        assert {name: own[name] for name in entry if name not in timed} == {
            name: value for name, value in entry.items() if name not in timed
        }
    assert all((a == b).all() for one, other in zip(theirs, ours, strict=True) for a, b in zip(one, other, strict=True))


@pytest.mark.trl
def test_what_is_logged_is_a_count_by_hand(runs):
    _, (_, log, table, batches) = runs
    assert len(batches) == 2 and table["arm"].tolist() == [*ARMS] * 2
    logged = [entry for entry in log if "watch/zvf/drawn" in entry]
    for (rewards_N, prompts_N, responses_N), rows, entry in zip(batches, (table[:3], table[3:]), logged, strict=True):
        rows, costs_N = rows.set_index("arm"), prompts_N + responses_N
        groups = rewards_N.reshape(-1, GROUP)
        mixed_N = np.repeat(groups.min(1) < groups.max(1), GROUP)
        refill = ROLLOUTS / mixed_N.sum()
        zvf, cost_aware, own = rows.loc["zvf"], rows.loc["cost-aware"], rows.loc["shortest"]
        assert (zvf["drawn"], zvf["distinct"], zvf["silent"], zvf["refill"]) == (1, 1, 0, refill)
        assert zvf["trained_tokens"] == pytest.approx(refill * costs_N[mixed_N].sum() / costs_N.sum())
        assert cost_aware["drawn"] == 1 and cost_aware["distinct"] <= mixed_N.mean() and cost_aware["silent"] == 0
        few = np.argsort(costs_N, kind="stable")[: ROLLOUTS // 4]
        weight_N = np.arange(1.0, len(few) + 1) + (np.arange(len(few)) == 0) * (len(few) + 1)
        live_N = mixed_N[few]
        assert own["drawn"] == (len(few) + 1) / ROLLOUTS and own["largest_weight"] == len(few) + 1
        assert own["distinct"] == live_N.sum() / ROLLOUTS
        assert own["per_distinct"] == pytest.approx(
            weight_N[live_N].sum() ** 2 / (weight_N[live_N] ** 2).sum() / live_N.sum()
        )
        assert own["silent"] == pytest.approx(1 - (live_N.sum() + live_N[0]) / (len(few) + 1))
        for arm, row in rows.iterrows():
            for measure in ("drawn", "distinct", "per_distinct", "silent", "trained_tokens", "refill"):
                assert entry[f"watch/{arm}/{measure}"] == pytest.approx(row[measure])


@pytest.mark.trl
def test_arms_that_a_batch_cannot_show_are_named(tmp_path):
    pytest.importorskip("trl", reason=MISSING)
    with pytest.raises(Refused, match="read entropies or log-probabilities: D³S"):
        watch(trainer_on_trl(tmp_path, None, plain=True), ["grpo", "d3s"])
