"""A step's rounds on verl, its queue in memory: filters, plans that learn, stages, what fails, a resume."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("tensordict", reason="verl is not installed here: `make extra-verl` installs it")

from omegaconf import OmegaConf
from tensordict import TensorDict
from test_verl_choosing import Queue
from transfer_queue import KVBatchMeta

from repro.arms import build
from repro.errors import Refused
from repro.methods.plans import PlannedGroup, Queries
from repro.policy.flops import FlopCounter
from repro.settings import Arm
from repro.verl.batch import nested
from repro.verl.host import UIDS
from repro.verl.record import Record

pytestmark = pytest.mark.verl

BUDGET, PROMPT, RESPONSE = 16, 3, 5


class Curious:
    """Groups of the query's number of rollouts and one more; the next query depends on what the last ones earned."""

    def __init__(self, queries, rollouts_per_step, rng):
        self.rate_Q, self.rng = np.full(len(queries), 0.5), rng

    def __iter__(self):
        while True:
            weight_Q = self.rate_Q * (1 - self.rate_Q) + 0.05
            query = int(self.rng.choice(len(weight_Q), p=weight_Q / weight_Q.sum()))
            yield PlannedGroup(query, query + 1)

    def observe(self, query, rewards_G, costs_G):
        assert (costs_G == PROMPT + RESPONSE).all()
        self.rate_Q[query] = (self.rate_Q[query] + np.clip(rewards_G.mean(), 0, 1)) / 2


def some(rewards_N, group_N) -> np.ndarray:
    """Groups that earned more than 1."""
    return np.bincount(group_N, rewards_N) > 1


class Step:
    """The trainer's rounds, verl's part replaced: of query q the first q rollouts are right; those in `lost` fail."""

    def __init__(self, monkeypatch, lost=(), **parts):
        from repro.verl import planned

        self.queue, self.rounds, self.lost = Queue(), [], set(lost)
        self.order = lambda uids: uids  # in which groups are finished
        monkeypatch.setattr(planned, "tq", self.queue)
        made = planned.PlannedTrainer.__new__(planned.PlannedTrainer)
        filter_groups = {"max_num_gen_batches": 0}
        made.config = OmegaConf.create(
            {"algorithm": {"filter_groups": filter_groups}, "data": {"max_response_length": RESPONSE}}
        )
        settings = SimpleNamespace(engine_of=lambda arm: SimpleNamespace(refill_rounds=5))
        method = build("own", Arm(title="own", about="", group="", **parts))
        made.run = SimpleNamespace(method=method, arm="own", seed=0, rollouts_per_step=BUDGET, settings=settings)
        made.arm, made.record = planned.Planned(made.run, self.known), Record(0, 1, 1, flops=FlopCounter(10, 1, 4))
        made.tokenizer, made.global_steps = SimpleNamespace(eos_token_id=0), 1
        made._submit, made.wait = self._submit, self._generated
        self.trainer = made

    known = Queries(np.full(8, PROMPT))

    def _submit(self, planned):
        flying, number = self.trainer.arm.flying, len(self.rounds)
        flying |= {f"{number}-{place}": group for place, group in enumerate(planned)}
        self.rounds.append([(group.query, group.size) for group in planned])
        return flying

    def _generated(self, global_steps, partition_id, batch_size):
        flying = self.trainer.arm.flying
        assert batch_size == len(self.rounds[-1])
        came = self.order(list(flying))[:batch_size]
        rows = {f"{uid}_{i}_0": (flying[uid].query, i) for uid in came for i in range(flying[uid].size)}
        rows = {key: row for key, row in rows.items() if key not in self.lost}
        columns = {
            "prompts": [torch.ones(PROMPT, dtype=torch.long) for _ in rows],
            "responses": [torch.full((RESPONSE,), 2) for _ in rows],
            "rm_scores": [torch.tensor([0.0] * (RESPONSE - 1) + [float(i < query)]) for query, i in rows.values()],
            "index": [torch.tensor([100 + query]) for query, _ in rows.values()],
        }
        fields = TensorDict({name: nested(values) for name, values in columns.items()}, batch_size=[len(rows)])
        self.queue.kv_batch_put(list(rows), partition_id, fields)
        tags = [{"seq_len": PROMPT + RESPONSE} for _ in rows]
        told = {"extra_info": {UIDS: came}}
        return KVBatchMeta(partition_id=partition_id, keys=list(rows)[::-1], tags=tags, **told), {}  # in verl's order

    def step(self):
        batch = self.trainer._collect()
        assert sorted(self.queue.rows["train"]) == sorted(batch.keys)  # what was dropped is not in the queue
        self.queue.kv_clear(batch.keys, "train")
        self.trainer.global_steps += 1
        return batch


def test_a_filter_of_ones_own_refills_and_a_plan_is_told_of_all_that_is_paid_for(monkeypatch):
    run = Step(monkeypatch, plan=Curious, filter=some, reward="overlong")
    for _ in range(5):
        before, taken = len(run.rounds), len(run.trainer.arm.plan.observed)
        run.step()
        if len(run.rounds) > before + 1:
            break
    made, drawn = run.trainer, [group for part in run.rounds[before:] for group in part]
    assert len(run.rounds) > before + 1
    kept = [(group.query, group.size) for group in made.scored.planned]
    # At full length a right response earns 0.5 and a wrong one -0.5: together, q / 2 - 1 / 2.
    passed = [group for group in drawn if group[0] > 3]
    assert kept == [
        group for group, used in zip(passed, np.cumsum([n for _, n in passed]), strict=True) if used <= BUDGET
    ]
    assert len(made.scored.rewards_N) == sum(n for _, n in kept)
    assert made.scored.index_N.tolist() == [100 + query for query, size in kept for _ in range(size)]
    assert set(made.scored.rewards_N) == {-0.5, 0.5}
    told, ledger = made.arm.plan.observed, made.record.ledger
    assert [(query, len(rewards)) for _, query, rewards, _ in told[taken:]] == drawn
    drawn = [group for part in run.rounds for group in part]
    assert (ledger.queries, ledger.rollouts) == (len(drawn), sum(size for _, size in drawn))
    assert ledger.generated_tokens == RESPONSE * ledger.rollouts


def test_a_resumed_plan_that_learns_draws_the_same_groups(monkeypatch):
    whole, cut = (Step(monkeypatch, plan=Curious, filter=some) for _ in range(2))
    for each in (whole, cut, whole, cut):
        monkeypatch.setattr("repro.verl.planned.tq", each.queue)
        each.step()
    saved = io.BytesIO()
    torch.save(cut.trainer.arm.state_dict(), saved)
    saved.seek(0)
    again = Step(monkeypatch, plan=Curious, filter=some)
    again.trainer.arm.load_state_dict(torch.load(saved, weights_only=False))
    again.trainer.global_steps = 3
    for each in (whole, again, whole, again):
        monkeypatch.setattr("repro.verl.planned.tq", each.queue)
        each.step()
    assert whole.rounds[-len(again.rounds) :] == again.rounds
    assert again.trainer.arm.plan.observed == whole.trainer.arm.plan.observed
    with pytest.raises(Refused, match="written by another version"):
        again.trainer.arm.load_state_dict({"_snapshot": {}})


def test_groups_in_stages_are_drawn_on_where_the_plan_asks_and_stay_together(monkeypatch):
    run = Step(monkeypatch, plan={"speed_rl": {"group_size": 8, "screening": 4}})
    run.step()
    scored, (first, second) = run.trainer.scored, run.rounds[:2]
    assert first == [(query, 4) for query, _ in first] and len(first) == BUDGET // 8
    assert second == [(query, 4) for query, _ in first if 0 < query < 4]  # some of four rollouts are right
    sizes = [(query, 8 if (query, 4) in second else 4) for query, _ in first]
    assert [(group.query, group.size) for group in scored.planned][: len(first)] == sizes and len({*sizes}) == 2
    assert len(scored.rewards_N) == sum(size for part in run.rounds for _, size in part) <= BUDGET
    for query, rewards_G, _ in scored.outcomes():  # each stage numbers its rollouts anew
        assert rewards_G.tolist() == [float(place % 4 < query) for place in range(len(rewards_G))]
    assert run.trainer.record.ledger.queries == sum(map(len, run.rounds))


def test_what_failed_is_missing_and_a_group_without_rollouts_is_left_out(monkeypatch):
    lost = ["0-0_0_0", "0-1_0_0", "0-1_1_0"]
    run = Step(monkeypatch, lost, plan={"uniform": {"group_size": 2}})
    batch = run.step()
    first, second, *others = run.rounds[0]
    assert [(group.query, group.size) for group in run.trainer.scored.planned] == [(first[0], 1), *others[:BUDGET]]
    assert run.trainer.failed == 3 and len(batch.keys) == BUDGET - 3 and second[1] == 2


def test_groups_ahead_of_their_step_train_when_they_are_finished_and_a_resume_submits_them_again(monkeypatch):
    from repro.verl.trainer import AheadTrainer

    run = Step(monkeypatch, plan={"uniform": {"group_size": 4}})
    made = run.trainer
    made.config.trainer = {"v1": {"colocate_async": {"num_warmup_batches": 2}}}
    made.total_training_steps = 9
    AheadTrainer.on_train_begin(made)
    per_step, planned = BUDGET // 4, [query for query, _ in run.rounds[0]]
    assert len(planned) == 2 * per_step and [size for _, size in run.rounds[0]] == [4] * len(planned)
    run.order = lambda uids: uids[1:] + uids[:1]  # the first is slow
    run.step()
    planned += [query for query, _ in run.rounds[1]]
    assert [group.query for group in made.scored.planned] == planned[1 : 1 + per_step]
    run.order = lambda uids: uids
    run.step()  # it is finished now, and comes first
    assert [group.query for group in made.scored.planned] == [planned[0], *planned[1 + per_step : 2 * per_step]]
    assert len(made.arm.flying) == 2 * per_step  # as many as before the first step

    again = Step(monkeypatch, plan={"uniform": {"group_size": 4}})
    again.trainer.config, again.trainer.total_training_steps = made.config, 9
    again.trainer.arm.load_state_dict(made.arm.state_dict())
    again.trainer.global_steps = 3
    AheadTrainer.on_train_begin(again.trainer)
    assert again.rounds == [[(group.query, 4) for group in made.arm.flying.values()]]
    assert again.trainer.arm.plan.taken == made.arm.plan.taken


def test_a_filter_that_drops_every_group_ends_the_run_in_a_sentence(monkeypatch):
    run = Step(monkeypatch, plan={"uniform": {"group_size": 4}}, filter=lambda rewards_N, group_N: np.zeros(4, bool))
    with pytest.raises(Refused, match=r"^arm own, step 1: 5 batches were generated and the filter left no group: "):
        run.step()
    assert len(run.rounds) == 5
    run.trainer.config.algorithm.filter_groups.max_num_gen_batches = 2
    with pytest.raises(Refused, match="step 1: 2 batches"):
        run.step()
