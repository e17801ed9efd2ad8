"""Plans that learn, and groups drawn in stages, in TRL's own training loop: told, asked, saved and resumed."""

import importlib.util
import json
from itertools import count

import numpy as np
import pytest
import torch
from test_trl import trainer_on_trl, weights
from tiny_run import GROUP, ROLLOUTS, pools

from repro.files import Unreadable
from repro.methods.memories import Remembered
from repro.methods.plans import PlannedGroup

pytestmark = [
    pytest.mark.trl,
    pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is missing: `make extra-trl` installs it"),
]


class Curious:
    """Queries with the probability p (1 - p) + 0.01, p a running mean of what they earned."""

    def __init__(self, queries, rollouts_per_step, rng, *, group_size: int = GROUP):
        self.rate_Q, self.rng, self.size = np.full(len(queries), 0.5), rng, group_size

    def __iter__(self):
        while True:
            chance_Q = self.rate_Q * (1 - self.rate_Q) + 0.01
            yield PlannedGroup(self.rng.choice(len(chance_Q), p=chance_Q / chance_Q.sum()), self.size)

    def observe(self, query, rewards_G, costs_G):
        self.rate_Q[query] += 0.5 * (rewards_G.mean() - self.rate_Q[query])


class Halved:
    """Each query in turn; the second half of a group only where the first has a success."""

    def __init__(self, queries, rollouts_per_step, rng):
        self.queries = len(queries)

    def __iter__(self):
        return (PlannedGroup(place % self.queries, GROUP // 2, GROUP // 2) for place in count())

    def more(self, queries_Q, rewards_Q, room):
        return [GROUP // 2 if len(r_G) == GROUP // 2 and r_G.max() > 0 else 0 for r_G in rewards_Q]

    def observe(self, query, rewards_G, costs_G):
        pass  # so that the stream keeps what it is told


@pytest.mark.parametrize("plan, filter", [(Curious, None), (Curious, "zero_variance"), (Halved, None)])
def test_a_plan_of_ones_own_is_told_of_every_group_and_resumes_with_the_same_bits(plan, filter, tmp_path):
    """Saved after each of four steps, two a batch: at the second batch's start a resumed run ends at the same weights;
    inside a batch the plan stands before it again."""
    parts = {"plan": plan, "filter": filter, "refill_rounds": 3, "objective": None}
    saving = {"save_strategy": "steps", "save_steps": 1}
    whole = trainer_on_trl(tmp_path, changes=saving, **parts)
    whole.train()
    observed = whole.running.plan.observed
    assert len(observed) == whole.running.plan.taken >= 4
    assert sum(len(rewards) for _, _, rewards, _ in observed) == whole.ledger.rollouts
    assert all(cost > reward for _, _, rewards, costs in observed for reward, cost in zip(rewards, costs, strict=True))
    resumed = trainer_on_trl(tmp_path, changes=saving, **parts)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert resumed.running.plan.observed == observed and (weights(resumed) == weights(whole)).all()
    inside, before = (
        json.loads((tmp_path / f"checkpoint-{at}" / "repro.json").read_text())["observed"] for at in (3, 2)
    )
    assert inside == before == json.loads(json.dumps(observed))[: len(before)] and 0 < len(before) < len(observed)


def test_the_stages_of_a_group_train_together(tmp_path):
    trainer = trainer_on_trl(tmp_path, plan=Halved, refill_rounds=3, changes={"max_steps": 2})
    batches, select = [], trainer._select
    trainer._select = lambda batch: batches.append(batch) or select(batch)
    trainer.train()
    [batch] = batches
    sizes = [len(rewards) for _, _, rewards, _ in trainer.running.plan.observed]
    assert set(sizes) <= {GROUP // 2, GROUP} and GROUP in sizes and sum(sizes) == len(batch) <= ROLLOUTS
    _, size_Q = np.unique(batch.group_N, return_counts=True)
    assert size_Q.tolist() == sizes
    for group, (_, query, rewards, costs) in enumerate(trainer.running.plan.observed):
        own = batch.group_N == group
        prompt = trainer._tokenizer(pools().train[query].prompt)["input_ids"]
        rows = zip(*(batch.tensors[name][torch.as_tensor(own)] for name in ("prompt_ids", "prompt_mask")), strict=True)
        assert all(ids[mask.bool()].tolist() == prompt for ids, mask in rows)
        assert batch.rewards_N[own].tolist() == rewards and batch.costs_N[own].tolist() == costs
        assert len(rewards) == (GROUP if max(rewards[: GROUP // 2]) > 0 else GROUP // 2)


@pytest.mark.parametrize("arm", ["mopps", "speed-rl"])
def test_an_arm_whose_plan_learns_trains(arm, tmp_path):
    trainer = trainer_on_trl(tmp_path, arm, changes={"max_steps": 2})
    trainer.train()
    assert trainer.ledger.rollouts >= ROLLOUTS and trainer.running.plan.taken >= 2


@pytest.mark.parametrize("objective", ["trl", "arm"])
def test_a_memory_trains_again_with_the_log_probabilities_of_then_and_resumes_with_the_same_bits(objective, tmp_path):
    """Half of the step's groups, and of those before: what is held keeps what it was drawn with."""

    def halves(rewards_N, group_N, age_Q, rng):
        even_Q, fresh_Q = np.arange(len(age_Q)) % 2 == 0, age_Q == 0
        return Remembered(even_Q | ~fresh_Q, ~even_Q & fresh_Q)

    parts = {"memory": halves, "objective": objective, "changes": {"save_strategy": "steps", "save_steps": 1}}
    whole, batches = trainer_on_trl(tmp_path, **parts), []
    select = whole._select

    def scored(batch):
        now_N_T, _ = whole._score(whole.model, batch, np.arange(len(batch)))
        gap_N_T = (batch.tensors["old_per_token_logps"] - now_N_T) * batch.mask_N_T
        batches.append((batch, gap_N_T.abs().amax(1).numpy()))
        return select(batch)

    whole._select = scored
    whole.train()
    [(first, _), (second, gap_N)] = batches
    again_N = second.place_N < 0
    assert gap_N[~again_N].max() < 1e-5 < 1e-4 < gap_N[again_N].max()
    assert len(first) == ROLLOUTS // 2 and again_N.sum() == ROLLOUTS // 2 and len(second) == ROLLOUTS
    resumed = trainer_on_trl(tmp_path, **parts)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert (weights(resumed) == weights(whole)).all() and resumed.running.memory.drawn_Q == [1]


def test_what_a_plan_observed_is_read_from_a_whole_checkpoint_alone(tmp_path):
    trainer = trainer_on_trl(tmp_path, plan=Curious, changes={"save_strategy": "steps", "save_steps": 2})
    trainer.train()
    file = tmp_path / "checkpoint-2" / "repro.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "observed": [[0, 0]]}))
    with pytest.raises(Unreadable, match="observed"):
        trainer.train(resume_from_checkpoint=str(file.parent))
