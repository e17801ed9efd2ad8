"""The planner: sizes against transformers, decoding against a loop, arms against closed forms."""

import numpy as np
import pandas as pd
import pytest

from repro import settings as settings_module
from repro.experiments.planner import plan, sensitivity, target
from repro.experiments.planner.drawn import draw
from repro.experiments.planner.hours import decode_seconds, engine_seconds, start_times
from repro.experiments.planner.measured import Measured
from repro.experiments.planner.memory import memory
from repro.experiments.planner.models import ARCHITECTURES
from repro.methods.group_sizes.posterior import expected_informative
from repro.policy.flops import FlopCounter
from repro.verl.papers import SCALES

SETTINGS = settings_module.load(scale="cpu")
SCALE = SCALES["paper-qwen2-5-math-1-5b-instruct"]
MODEL = ARCHITECTURES[SCALE.model.value]
ALIKE = Measured(  # every response equally long, one population of queries all the time
    np.array([0.0]), np.array([0.5]), np.array([0.7]), {(4, 0): np.ones(1), (4, 1): np.ones(1)},
    {(4, 0): np.ones(1), (4, 1): np.ones(1)}, 8,
)  # fmt: skip

LEARNING = [name for name, arm in SETTINGS.all_arms.items() if arm.group == "Online"]  # verl trains none of them


def assume(**replaced):
    """The assumptions of params.yaml with some replaced."""
    return SETTINGS.planner.model_copy(update=replaced)


def hub_model(name: str):
    """transformers' own model of that architecture, without memory for its weights."""
    import torch
    import transformers

    own = ARCHITECTURES[name]
    kind = own.family.capitalize()
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=own.vocabulary,
        hidden_size=own.hidden,
        intermediate_size=own.feed_forward,
        num_hidden_layers=own.layers,
        num_attention_heads=own.heads,
        num_key_value_heads=own.key_value_heads,
        head_dim=own.head_width,
        tie_word_embeddings=own.tied,
    )
    with torch.device("meta"):
        return getattr(transformers, f"{kind}ForCausalLM")(config)


@pytest.mark.parametrize(
    ("name", "billions"),
    {
        "Qwen/Qwen2.5-Math-1.5B": 1.54,
        "Qwen/Qwen2.5-Math-7B": 7.62,
        "Qwen/Qwen3-4B": 4.02,
        "Qwen/Qwen3-8B": 8.19,
        "meta-llama/Llama-3.1-8B-Instruct": 8.03,
    }.items(),
)
def test_counts_are_those_of_transformers_own_model(name, billions):
    model, own = hub_model(name), ARCHITECTURES[name]
    assert own.counter == FlopCounter.of(model)
    assert own.parameters == sum(weight.numel() for weight in model.parameters())
    assert own.parameters / 1e9 == pytest.approx(billions, abs=0.005)


def test_every_scale_has_its_models_sizes():
    assert {scale.model.value for scale in SCALES.values()} <= ARCHITECTURES.keys()


def test_slots_are_filled_as_they_become_free():
    assert start_times(np.array([3, 1, 2, 5]), 2).tolist() == [0, 0, 1, 3]
    assert start_times(np.array([3, 1]), 8).tolist() == [0, 0]


def test_decoding_is_what_a_loop_over_its_steps_adds_up_to():
    rng = np.random.default_rng(0)
    tokens_N, prompt, assumed = rng.integers(2, 40, 25), 7, assume(slots=6, decode_overhead_ms=2.0)
    start_N = start_times(tokens_N, 6)
    expected = 0.0
    for step in range(int((start_N + tokens_N).max())):
        alive_N = (start_N <= step) & (step < start_N + tokens_N)
        context = (prompt + step - start_N)[alive_N].sum()
        read = (2 * MODEL.matmul_parameters + context * MODEL.cache_bytes) / (3350e9 * 0.6)
        compute = 2 * MODEL.matmul_parameters * alive_N.sum() / (989e12 * 0.4)
        expected += max(read, compute) + 0.002
    assert decode_seconds(tokens_N, prompt, MODEL, assumed) == pytest.approx(expected, rel=1e-12)


def test_the_baseline_is_its_closed_form_where_all_responses_are_alike():
    assumed = assume(mean_response_share=0.5)
    found = plan.row(SCALE, SETTINGS, "grpo", ALIKE, assumed)
    n, response, prompt = 256 * 16, round(0.5 * 3072), assumed.prompt_tokens
    counter, sequence = MODEL.counter, np.array([prompt + round(0.5 * 3072)])
    assert found["steps"] == SCALE.steps
    assert found["rollouts"] == pytest.approx(SCALE.steps * n)
    assert found["generated_tokens"] == pytest.approx(SCALE.steps * n * response)
    assert found["trained_tokens"] == pytest.approx(SCALE.steps * n * (prompt + response))
    assert found["scored_tokens"] == pytest.approx(2 * found["trained_tokens"])  # the old policy and the reference
    assert found["flops_train"] == pytest.approx(SCALE.steps * n * counter.forward_backward(sequence))
    assert found["flops_score"] == pytest.approx(2 / 3 * found["flops_train"])
    seconds = found["flops_train"] / (8 * 989e12 * 0.30)
    assert found["hours_train"] == pytest.approx(seconds / 3600)
    parts = sum(found[f"hours_{phase}"] for phase in ("generate", "score", "train", "other"))
    assert (found["hours"], found["gpu_hours"]) == pytest.approx((parts, 8 * parts))


def test_samplers_cost_what_they_keep_where_all_responses_are_alike():
    rows = pd.DataFrame(
        [
            plan.row(SCALE, SETTINGS, arm, ALIKE, SETTINGS.planner)
            for arm in ("grpo", "cost-aware", "random-quarter", "d2s")
        ]
    )
    rows = plan.relative(rows, "grpo").set_index("arm")
    paper = rows["paper_tokens"] / rows["paper_tokens"]["grpo"]
    assert paper.to_dict() == pytest.approx({"grpo": 1, "cost-aware": 1, "random-quarter": 0.25, "d2s": 0.25})
    trained, scored = rows["trained_ratio"], rows["scored_tokens"] / rows["scored_tokens"]["grpo"]
    assert trained[["random-quarter", "d2s"]].tolist() == pytest.approx([0.25, 0.25])
    assert scored["random-quarter"] == pytest.approx(0.25)  # chosen first, then scored
    assert scored["d2s"] == pytest.approx((1 + 0.25) / 2)  # it reads entropies, of all; the reference's pass follows
    # With replacement, each distinct rollout is scored once, and trained on once in each mini-batch that drew it.
    assert 0.3 < scored["cost-aware"] < trained["cost-aware"] < 1


def test_zvf_generates_as_many_groups_as_informative_ones_are_rare():
    assumed = assume(pool=4000, batches=16)
    grpo, zvf = (draw(SCALE, SETTINGS, arm, ALIKE, assumed) for arm in ("grpo", "zvf"))
    informative, kept, dropped, rounds = float(expected_informative(0.5, 0.7, 16)), 0.0, 0.0, []
    while kept < 1:  # verl generates two groups for each that its filter drops
        rounds.append(2 * dropped if rounds else 1.0)
        kept, dropped = kept + informative * rounds[-1], (1 - informative) * rounds[-1]
    assert grpo.ledger.queries == 16 * 64
    assert zvf.ledger.queries / grpo.ledger.queries == pytest.approx(sum(rounds), rel=0.05)
    assert zvf.ledger.trained_tokens == grpo.ledger.trained_tokens


def test_what_verl_itself_takes_is_its_closed_form():
    batch = {"rollouts": 4096.0, "updates": 16.0}
    assumed = assume(response_ms=10.0, response_workers=8, call_seconds=0.5, sync_gbps=5.0, checkpoint_gbps=1.0)
    weights, saved = 2 * MODEL.parameters / 5e9, 12 * MODEL.parameters / 1e9 / 10
    passes = 16 + 1 + (SCALE.kl.value > 0)
    expected = 4096 * 0.010 / 8 + 0.5 * passes + weights + saved
    assert engine_seconds(batch, SCALE, MODEL, assumed) == pytest.approx(expected)


def test_a_profile_is_charged_by_its_share_of_the_run():
    assumed = SETTINGS.planner
    found = plan.row(SCALE, SETTINGS, "sgpo", ALIKE, assumed)
    response = round(assumed.mean_response_share * 3072)
    assert found["profile_tokens"] == pytest.approx(SCALE.train_queries.value * 8 * response, rel=0.02)
    assert plan.row(SCALE, SETTINGS, "grpo", ALIKE, assumed)["profile_tokens"] == 0


def test_every_arm_can_be_planned_at_the_smallest_and_the_largest_group():
    for name in ("paper-qwen3-8b", "paper-llama3-1-8b-instruct"):
        found = plan.predict(SETTINGS, ALIKE, assume(batches=4), scales={name: SCALES[name]})
        assert list(found["arm"]) == [arm for arm in SETTINGS.compared_arms if arm not in LEARNING]
        assert np.isfinite(found.drop(columns=["scale", "arm"]).to_numpy(float)).all()
        assert (found["hours"] > 0).all() and (found["memory_train"] < SETTINGS.planner.memory_gb).all()


def selection() -> pd.DataFrame:
    """Two logged steps; short right answers, long wrong ones; at the second step all is easier."""
    rng, rows = np.random.default_rng(0), []
    for step, (a, b) in {0: (1.0, 3.0), 20: (3.0, 1.0)}.items():
        for query in range(400):
            for right in rng.random(8) < rng.beta(a, b):
                row = {"step": step, "seed": 0, "query": query, "reward": float(right), "entropy": 0.5 - 0.2 * right}
                rows.append({**row, "response_tokens": 10 if right else 30})
    return pd.DataFrame(rows)


def test_measured_difficulty_and_lengths_come_back():
    measured, rng = Measured.of(selection(), 40), np.random.default_rng(1)
    assert measured.progress_S.tolist() == [0.0, 0.5]
    mean_S = measured.alpha_S / (measured.alpha_S + measured.beta_S)
    assert mean_S == pytest.approx([0.25, 0.75], abs=0.03)
    quantile_Q = rng.random(20_000)
    assert measured.success(quantile_Q, 0.25).mean() == pytest.approx(0.5, abs=0.05)
    assert measured.success(quantile_Q, 0.9).mean() == pytest.approx(mean_S[1], abs=0.01)
    reward_N = np.array([0, 1, 1, 0])
    length_N, entropy_N = measured.draw(np.array([0.0, 0.5, 1.0, 1.0]), reward_N, rng)
    mean = selection()["response_tokens"].mean()
    assert length_N == pytest.approx(np.where(reward_N, 10, 30) / mean)
    assert entropy_N == pytest.approx(np.where(reward_N, 0.3, 0.5))


def test_memory_is_its_closed_form():
    scale = SCALES["paper-qwen2-5-math-7b"]
    model = ARCHITECTURES[scale.model.value]
    found = memory(scale, model, 8, 1000.0, SETTINGS.planner)
    assert found.states == pytest.approx(model.parameters * 16 / 8 / 1e9)
    assert found.logits == pytest.approx(16384 * 152064 * 12 / 1e9)
    cache = 2 * 28 * 4 * 128 * 2  # bytes of a token
    assert found.sequences == int((0.6 * 80e9 - 2 * model.parameters) / (1000 * cache))


def test_the_length_at_which_the_papers_hours_come_out():
    table = pd.DataFrame({"scale": SCALE.name, "arm": "grpo", "hours": [20.0, 60.0], "response_tokens": [500.0, 900.0]})
    (agreed,) = plan.length_of_paper(table).to_dict("records")
    assert agreed == {"scale": SCALE.name, "arm": "grpo", "agree_at": pytest.approx(500 + 400 * 28 / 40)}
    assert np.isnan(plan.length_of_paper(table.assign(hours=[1.0, 2.0]))["agree_at"].item())


def test_hours_to_the_target_and_the_papers_savings():
    arms, scales = ["grpo", "zvf", "cost-aware"], {SCALE.name: SCALE}
    predicted = plan.relative(plan.predict(SETTINGS, ALIKE, SETTINGS.planner, arms, scales), "grpo")
    steps = pd.DataFrame({"arm": ["grpo", "zvf"], "steps_ratio": [1.0, 0.5], "steps_ratio_low": [1.0, 0.4]})
    steps = steps.assign(steps_ratio_high=[1.0, 0.7], steps_ratio_reached=[True, False], steps_ratio_open=[False, True])
    table, checked = target.to_target(predicted, steps), plan.checks(predicted, scales)
    assert checked["paper_hours"].tolist() == [48.0, 72.0]
    assert checked["share"].tolist() == pytest.approx((checked["hours"] / [48, 72]).tolist())
    zvf = table.set_index("arm").loc["zvf"]
    assert zvf["target_ratio"] == pytest.approx(0.5 * zvf["hours_ratio"])
    assert zvf["target_ratio_low"] == pytest.approx(0.4 * zvf["hours_ratio"])
    assert table.set_index("arm").loc["cost-aware", ["steps_ratio", "target_ratio"]].isna().all()  # not in the study
    savings = target.papers_savings(table, scales)
    assert savings["arm"].tolist() == ["cost-aware", "cost-aware"]  # its other arms are not in the plan
    assert savings["paper"].tolist() == [0.72, 0.66] and savings["benchmark"].tolist() == ["AIME", "AMC"]
    cost_aware, grpo = (table.set_index("arm").loc[arm, "trained_tokens"] for arm in ("cost-aware", "grpo"))
    assert savings["run"].tolist() == pytest.approx([cost_aware / grpo] * 2) and savings["target"].isna().all()


def test_other_assumptions_move_the_hours_as_they_should():
    scales = {SCALE.name: SCALE}
    found = sensitivity.sensitivity(SETTINGS, ALIKE, SETTINGS.planner, scales=scales)
    grpo = found[found["arm"] == "grpo"].set_index("change")["hours"]
    base = plan.row(SCALE, SETTINGS, "grpo", ALIKE, SETTINGS.planner)
    assert grpo["as-assumed"] == base["hours"]
    slower = grpo["slower-compute"] - base["hours"]
    with_others = (1 + SETTINGS.planner.other_share) * (base["hours_train"] + base["hours_score"])
    assert slower >= with_others > 0  # prompts are prefilled at the scoring rate too
    questions = 933 + 40 + 500 + 1319
    more = base["steps"] // 20 * questions * 32 * base["hours_generate"] / base["rollouts"]
    assert grpo["full-evaluations"] == pytest.approx(base["hours"] + more)
    assert grpo["all-of-these"] > grpo.drop("all-of-these").max()
    few = assume(batches=2)
    drawn = plan.relative(plan.predict(SETTINGS, ALIKE, few, ["grpo", "zvf"], {SCALE.name: SCALE}), "grpo")
    ends = sensitivity.over_draws(drawn, SCALE, SETTINGS, ALIKE, few, draws=2)
    assert ends.loc[0, ["hours_ratio_low", "hours_ratio_high"]].tolist() == [1.0, 1.0]
    assert ends.loc[1, "hours_ratio_low"] < ends.loc[1, "hours_ratio_high"]
