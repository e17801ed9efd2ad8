"""Whole runs of a tiny policy: resumed or repeated they give the same bits, paired by seed, and survive no signal."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_run import ENGINE, EVALUATION, ROLLOUTS, STEPS, new_trainer, parity, pools, reward_with, run, weights

from repro.engine.checkpoint import Checkpoints
from repro.engine.evaluate import GREEDY, evaluate, summary
from repro.engine.update import Diverged
from repro.protocol.streams import PURPOSES, stream_seed
from repro.settings import Arm

ARMS = ("grpo", "cost-aware", "random-subset")


@pytest.fixture(autouse=True)
def score_parity(monkeypatch):
    reward_with(monkeypatch, parity)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One uninterrupted run of every arm: (trainer, log)."""
    with pytest.MonkeyPatch.context() as patch:
        reward_with(patch, parity)
        trainers = {arm: new_trainer(arm) for arm in ARMS}
        return {
            arm: (trainer, run(trainer, Checkpoints(tmp_path_factory.mktemp(arm), "a")))
            for arm, trainer in trainers.items()
        }


@pytest.mark.parametrize("arm", ["grpo", "cost-aware"])
@pytest.mark.parametrize("stop_at", [1, 4, STEPS])
def test_an_interrupted_run_ends_with_the_bits_of_an_uninterrupted_one(tmp_path, whole, arm, stop_at):
    uninterrupted, log = whole[arm]
    checkpoints = Checkpoints(tmp_path, "a")
    with pytest.raises(KeyboardInterrupt):
        run(new_trainer(arm), checkpoints, stop_at)
    (tmp_path / ".state.pt.1.partial").write_bytes(b"left over")
    resumed = new_trainer(arm)
    assert run(resumed, checkpoints) == log
    assert weights(resumed) == weights(uninterrupted)
    timed = {(row["step"], row["phase"]) for row in resumed.log.seconds}
    assert timed == {(row["step"], row["phase"]) for row in uninterrupted.log.seconds}


def test_a_resumed_run_redoes_at_most_one_checkpoint_interval(tmp_path):
    checkpoints = Checkpoints(tmp_path, "a")
    with pytest.raises(KeyboardInterrupt):
        run(new_trainer(), checkpoints, stop_at=3)
    assert checkpoints.restore(new_trainer()) == 2


def test_the_same_seed_twice_gives_the_same_log_and_another_does_not(tmp_path, whole):
    torch.manual_seed(99)  # the run's streams are its own
    assert run(new_trainer("cost-aware"), Checkpoints(tmp_path / "0", "a")) == whole["cost-aware"][1]
    other = run(new_trainer("cost-aware", seed=1), Checkpoints(tmp_path / "1", "a"))
    assert other["rollouts"][0]["response"] != whole["cost-aware"][1]["rollouts"][0]["response"] or (
        other["evaluations"][0]["response_tokens"] != whole["cost-aware"][1]["evaluations"][0]["response_tokens"]
    )


def test_arms_with_one_seed_start_from_the_same_evaluation_and_the_same_groups(whole):
    generated = ("prompt", "response", "reward", "advantage", "cost")
    first = {
        arm: [[row[name] for name in generated] for row in log["rollouts"] if row["step"] == 0]
        for arm, (_, log) in whole.items()
    }
    assert len(first["grpo"]) == ROLLOUTS
    assert first["grpo"] == first["cost-aware"] == first["random-subset"]
    assert len({str(log["evaluations"][0]) for _, log in whole.values()}) == 1
    for name in ("reward", "entropy", "groups_without_signal", "queries", "generated_tokens", "flops_generate"):
        assert len({log["steps"][0][name] for _, log in whole.values()}) == 1
    assert len({str(weights(trainer)) for trainer, _ in whole.values()}) == 3  # and part ways


def test_rollouts_of_one_query_stand_together_and_their_advantages_follow(whole):
    for row_group in np.split(np.array(whole["grpo"][1]["rollouts"][:ROLLOUTS]), 2):
        assert len({row["prompt"] for row in row_group}) == 1
        rewards = np.array([row["reward"] for row in row_group])
        expected = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        assert [row["advantage"] for row in row_group] == pytest.approx(expected)
        assert all(row["reward"] == 1 - len(row["response"]) % 2 for row in row_group)


def test_what_trained_is_what_was_logged(whole):
    grpo, cost_aware, subset = (whole[arm][1] for arm in ARMS)
    for row in grpo["steps"]:
        assert row["selected_rollouts"] == row["distinct_rollouts"] == row["effective_sample_size"] == ROLLOUTS
        assert row["largest_weight"] == 1.0
    assert all(row["times_trained"] == 1 for row in grpo["rollouts"])
    drawn = [row for row in cost_aware["rollouts"] if row["step"] == 0]
    assert sum(row["times_trained"] for row in drawn) == ROLLOUTS
    signal = np.array([abs(row["advantage"]) / np.sqrt(row["cost"]) for row in drawn])
    for row, p in zip(drawn, signal / signal.sum(), strict=True):
        if row["times_trained"]:
            assert row["weight"] == pytest.approx(1 / (np.count_nonzero(signal) * p))
    selected = sum(row["cost"] * row["times_trained"] for row in drawn)
    assert cost_aware["steps"][0]["selected_tokens"] == cost_aware["steps"][0]["paper_tokens"] == selected
    assert all(row["times_trained"] <= 1 and row["weight"] in (0.0, 1.0) for row in subset["rollouts"])


def test_the_ledger_adds_up_over_a_run(whole):
    for _, log in whole.values():
        trained, updates = 0.0, 0
        for index, row in enumerate(log["steps"], start=1):
            trained += row["selected_tokens"] or 0.0
            updates += 0 if row["skipped"] else 2
            assert (row["queries"], row["rollouts"]) == (2 * index, ROLLOUTS * index)
            assert row["updates"] == updates and row["paper_tokens"] == trained
            assert row["scored_tokens"] == 0
            assert row["flops"] == row["flops_generate"] + row["flops_train"]
        totals = [row["generated_tokens"] for row in log["steps"]]
        assert np.diff([0, *totals]) == pytest.approx([ROLLOUTS * row["response_tokens"] for row in log["steps"]])
        last = {name: log["steps"][-1][name] for name in ("trained_tokens", "flops", "updates")}
        assert {name: log["evaluations"][-1][name] for name in last} == last


def test_evaluations_come_at_their_steps_and_questions_at_the_end(whole):
    for _, log in whole.values():
        assert [(row["step"], row["samples"]) for row in log["evaluations"]] == [(0, 2), (2, 2), (4, 2), (STEPS, 3)]
        assert log["evaluations"][0]["flops"] == 0 and log["evaluations"][0]["updates"] == 0
        assert [row["query"] for row in log["questions"]] == list(range(7))
        assert sum(row["successes"] for row in log["questions"]) / 21 == pytest.approx(
            log["evaluations"][-1]["accuracy"]
        )


def priced(steps: list[dict], price: float | None, part: float = 1.0, **changes):
    """(evaluation with the bill of `part` of a run, what the run has paid after each step, by hand): FLOPs, those of
    generation being worth so much that they are the share `price` of all that the run pays."""
    total, generation = (1e-9 * steps[-1][name] for name in ("flops", "flops_generate"))
    weight = price * (total - generation) / ((1 - price) * generation) if price else 1.0
    bill = {"budget_gflops": part * total, "generation_gflops": part * generation, "price": price}
    paid = [1e-9 * (weight * row["flops_generate"] + row["flops_score"] + row["flops_train"]) for row in steps]
    return EVALUATION.model_copy(update={**bill, **changes}), paid


@pytest.mark.parametrize(("budgets", "price"), [(40, None), (4, 0.9)])
def test_evaluations_come_when_a_share_of_the_bill_is_paid_wherever_a_run_stops(
    tmp_path, monkeypatch, whole, budgets, price
):
    reward_with(monkeypatch, parity)
    evaluation, paid = priced(whole["grpo"][1]["steps"], price, 0.7, budgets=budgets)  # the run goes on beyond it
    spent, budget = [0.0, *paid], 0.7 * paid[-1]
    log = run(new_trainer(evaluation=evaluation), Checkpoints(tmp_path / "whole", "a"))
    marks = [k * budget / budgets for k in range(1, 2 * budgets)]
    crossed = [step for step in range(1, STEPS) if any(spent[step - 1] < mark <= spent[step] for mark in marks)]
    assert [row["step"] for row in log["evaluations"]] == [0, *crossed, STEPS]  # one, even where two are crossed
    assert [row["share"] for row in log["evaluations"]] == pytest.approx(
        [spent[step] / budget for step in (0, *crossed, STEPS)]
    )
    assert log["steps"] == whole["grpo"][1]["steps"]  # when it is evaluated changes nothing in a run
    for stop_at in range(1, STEPS + 1):
        checkpoints = Checkpoints(tmp_path / f"cut-{stop_at}", "a")
        with pytest.raises(KeyboardInterrupt):
            run(new_trainer(evaluation=evaluation), checkpoints, stop_at)
        assert run(new_trainer(evaluation=evaluation), checkpoints) == log


def test_the_kl_to_the_reference_starts_at_zero_and_grows(whole):
    for _, log in whole.values():
        kl = [row["kl"] for row in log["steps"]]
        assert kl[0] == pytest.approx(0.0, abs=1e-9) and all(value > 1e-7 for value in kl[1:])


def test_a_kl_term_is_scored_and_charged(tmp_path):
    trainer = new_trainer(kl=0.1, steps=2)
    last = run(trainer, Checkpoints(tmp_path, "a"))["steps"][-1]
    assert last["scored_tokens"] == last["trained_tokens"] == last["paper_tokens"] > 0
    assert last["flops_score"] == pytest.approx(last["flops_train"] / 3)


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("reward", [0.1])
def test_a_batch_without_signal_is_generated_paid_for_and_skipped(tmp_path, monkeypatch, arm, reward):
    reward_with(monkeypatch, lambda texts, *_: np.full(len(texts), reward))
    trainer = new_trainer(arm, steps=2)
    before = weights(trainer)
    log = run(trainer, Checkpoints(tmp_path, "a"))
    assert [row["skipped"] for row in log["steps"]] == [True, True]
    assert [row["groups_without_signal"] for row in log["steps"]] == [1.0, 1.0]
    assert weights(trainer) == before
    assert log["steps"][-1]["rollouts"] == 2 * ROLLOUTS and log["steps"][-1]["flops_generate"] > 0
    assert log["steps"][-1]["updates"] == 0 and log["steps"][-1]["trained_tokens"] == 0
    assert all(row["times_trained"] == 0 for row in log["rollouts"])


def test_weights_reach_the_gradient_and_the_number_of_minibatches_is_the_samplers_to_set(tmp_path):
    def tripled(rollouts, progress, rng):
        return rollouts.take(np.arange(len(rollouts)), np.full(len(rollouts), 3.0), minibatches=1)

    rows = []
    for sampler in (tripled, lambda rollouts, *_: rollouts.take(np.arange(len(rollouts)), minibatches=1)):
        trainer = new_trainer(steps=1, gradient_clip=1e-9)
        trainer.method = replace(trainer.method, samplers=[sampler])
        rows += run(trainer, Checkpoints(tmp_path / str(len(rows)), "a"))["steps"]
    assert [row["updates"] for row in rows] == [1, 1]
    assert rows[0]["gradient_norm"] == pytest.approx(3 * rows[1]["gradient_norm"], rel=1e-4)  # before it is clipped
    assert [row["effective_sample_size"] for row in rows] == pytest.approx([ROLLOUTS] * 2)


def test_streams_of_seed_step_and_purpose_do_not_meet():
    seeds = {stream_seed(seed, step, purpose) for seed in range(5) for step in range(60) for purpose in PURPOSES}
    assert len(seeds) == 5 * 60 * len(PURPOSES) and all(0 <= seed < 2**63 for seed in seeds)
    assert stream_seed(3, 7, "sample") == stream_seed(3, 7, "sample")


def test_grpo_without_its_zero_rows_is_the_same_trajectory(tmp_path):
    moved = {}
    for every_row in (False, True):
        trainer = new_trainer("grpo", steps=32)
        trainer.update_settings = replace(trainer.update_settings, every_row=every_row)
        log = run(trainer, Checkpoints(tmp_path, f"{every_row}"))
        moved[every_row] = torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])
        start = torch.cat([parameter.detach().flatten() for parameter in trainer.reference.parameters()])
        last = log["steps"][-1]
        assert (last["trained_tokens"] == last["paper_tokens"]) == every_row
    assert float((moved[False] - moved[True]).norm()) <= 1e-4 * float((moved[True] - start).norm())


@pytest.mark.parametrize(("stop_at", "price"), [(None, None), (3, None), (3, 0.9)])
def test_a_run_with_a_budget_ends_with_the_step_that_pays_it_and_schedules_go_by_its_share(
    tmp_path, whole, stop_at, price
):
    evaluation, spent = priced(whole["grpo"][1]["steps"], price)
    seen = []

    def watch(rollouts, progress, rng):
        seen.append(progress)
        return rollouts

    arm = Arm(title="t", about="", group="g", samplers=[watch])
    budget = {"stop_gflops": (spent[2] + spent[3]) / 2, "steps": 1}  # between the third and the fourth step's end
    if stop_at:
        with pytest.raises(KeyboardInterrupt):
            run(new_trainer(arm, evaluation=evaluation, **budget), Checkpoints(tmp_path, "a"), stop_at)
    log = run(new_trainer(arm, evaluation=evaluation, **budget), Checkpoints(tmp_path, "a"))
    assert log["steps"] == whole["grpo"][1]["steps"][:4]
    assert log["evaluations"][-1]["step"] == 4 and len(log["questions"]) == len(whole["grpo"][1]["questions"])
    shares = [0.0, *(paid / budget["stop_gflops"] for paid in spent[:3])]
    expected = shares if stop_at is None else [*shares[:3], *shares[2:]]  # again from the checkpoint
    assert seen == pytest.approx(expected, rel=1e-12)


def test_a_diverged_run_with_a_budget_ends_at_once(tmp_path, monkeypatch):
    def diverges(*_):
        raise Diverged

    monkeypatch.setattr("repro.engine.train.run_updates", diverges)
    log = run(new_trainer(stop_gflops=1e9), Checkpoints(tmp_path, "a"))
    assert [row["step"] for row in log["evaluations"]] == [0, 1] and log["evaluations"][-1]["diverged"]


def test_common_draws_are_shared_on_the_way_and_by_a_seed_at_the_end(tmp_path):
    """At a learning rate of 0, where every evaluation is of the same policy, what differs is the draws."""
    evaluation, way, last = EVALUATION.model_copy(update={"common": True}), {}, {}
    for arm, seed in (("grpo", 0), ("cost-aware", 0), ("grpo", 1)):
        trainer = new_trainer(arm, seed, evaluation, learning_rate=0.0)
        log = run(trainer, Checkpoints(tmp_path / f"{arm}-{seed}", "a"))
        way[arm, seed] = [(row["accuracy"], row["response_tokens"]) for row in log["evaluations"][:-1]]
        last[arm, seed] = [(row["successes"], row["tokens"]) for row in log["questions"]]
    by_hand = [summary(sampled(trainer, 2, stream_seed(0, k, "evaluate"), stratified=True), 2) for k in range(3)]
    expected = [(row["accuracy"], row["response_tokens"]) for row in by_hand]
    assert way["grpo", 0] == way["cost-aware", 0] == way["grpo", 1] == expected and len(set(expected)) == 3
    assert last["grpo", 0] == last["cost-aware", 0] != last["grpo", 1]


def sampled(trainer, samples: int, seed: int, queries=None, temperature: float = 1.0, **draws):
    how = {"batch_rollouts": EVALUATION.batch_rollouts, "max_new_tokens": ENGINE.max_new_tokens, "seed": seed, **draws}
    queries = queries or trainer.data.evaluation
    return evaluate(trainer.model, trainer.tokenizer, queries, samples=samples, temperature=temperature, **how)


def test_greedy_and_harder_columns_are_those_of_evaluations_by_hand(tmp_path):
    trainer = new_trainer(seed=1, evaluation=EVALUATION.model_copy(update={"greedy": True, "common": False}))
    trainer.data = replace(trainer.data, harder=pools().harder)
    log, seed = run(trainer, Checkpoints(tmp_path, "a")), stream_seed(1, STEPS, "evaluate")
    for table, queries, mean, greedy in (
        ("questions", trainer.data.evaluation, "accuracy", "greedy"),
        ("harder", trainer.data.harder, "harder", "harder_greedy"),
    ):
        drawn, likeliest = (sampled(trainer, n, seed, queries, t) for n, t in ((3, 1.0), (1, GREEDY)))
        expected = zip((query.prompt for query in queries), drawn["successes"], likeliest["successes"], strict=True)
        assert [(row["prompt"], row["successes"], row["greedy"]) for row in log[table]] == list(expected)
        found = [log["evaluations"][-1][name] for name in (mean, greedy)]
        assert found == pytest.approx([drawn["successes"].mean() / 3, likeliest["successes"].mean()])
