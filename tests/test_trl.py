"""ArmTrainer on TRL: the embedded engine's selection, loss and gradient on the same batch; a few steps of training."""

import copy
import importlib.util
import json
import runpy
from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_run import ENGINE, GROUP, ROLLOUTS, new_trainer, parity, pools, reward_with

from repro.engine.generate import generate
from repro.engine.log_probabilities import Batch
from repro.engine.update import accumulate_gradients
from repro.methods.guard import MethodError
from repro.methods.plans import Queries
from repro.methods.rollouts import Rollouts
from repro.policy.model import build_qwen2, save_policy
from repro.protocol.streams import stream_seed
from repro.settings import SettingsError, load
from repro.tasks.tokenizer import build_tokenizer

pytestmark = [
    pytest.mark.trl,
    pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is missing: `make extra-trl` installs it"),
]

ACCUMULATE, UPDATES = 2, 2
TOKENIZER = build_tokenizer()


def even(completion_ids, **_):
    """`parity` of the text without its end, as the embedded engine scores it here."""
    ends = [ids[:-1] if ids[-1] == TOKENIZER.eos_token_id else ids for ids in completion_ids]
    return parity(TOKENIZER.batch_decode(ends)).tolist()


def trainer_on_trl(
    folder, arm=None, *, reward=even, changes=(), objective="arm", plain=False, peft_config=None, **parts
):
    """An ArmTrainer; `plain`: TRL's own trainer."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from repro.trl import ArmTrainer

    torch.manual_seed(0)
    model = build_qwen2(hidden=16, layers=1, heads=2, max_length=64)
    config = dict(
        output_dir=str(folder),
        max_steps=4,
        per_device_train_batch_size=ROLLOUTS // UPDATES // ACCUMULATE,
        gradient_accumulation_steps=ACCUMULATE,
        steps_per_generation=UPDATES * ACCUMULATE,
        num_generations=GROUP,
        max_completion_length=ENGINE.max_new_tokens,
        learning_rate=1e-2,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        seed=0,
        save_strategy="no",
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
    )
    kind = GRPOTrainer if plain else partial(ArmTrainer, arm=arm, objective=objective, **parts)
    return kind(
        model=model,
        peft_config=peft_config,
        reward_funcs=reward,
        args=GRPOConfig(**{**config, **dict(changes)}),
        train_dataset=Dataset.from_list([{"prompt": query.prompt} for query in pools().train]),
        processing_class=build_tokenizer(),
    )


def samples_like_the_engine(trainer, model):
    """TRL's generation replaced by the embedded engine's, with its random stream of step 0."""
    generator = torch.Generator().manual_seed(stream_seed(0, 0, "generate"))

    def _generate(prompts):
        runs = [(text, len(list(copies))) for text, copies in groupby(prompts)]
        ids_Q = trainer._tokenizer([text for text, _ in runs])["input_ids"]
        responses = generate(
            model,
            ids_Q,
            [count for _, count in runs],
            max_new_tokens=ENGINE.max_new_tokens,
            eos=TOKENIZER.eos_token_id,
            pad=TOKENIZER.pad_token_id,
            temperature=ENGINE.temperature,
            generator=generator,
        )
        ids_N = [ids for ids, (_, count) in zip(ids_Q, runs, strict=True) for _ in range(count)]
        rows = [ids[mask].tolist() for ids, mask in zip(responses.ids_N_T, responses.mask_N_T, strict=True)]
        return ids_N, rows, None, TOKENIZER.batch_decode(rows), None, {}, None, []

    trainer._generate = _generate


def moved(model):
    """The model's weights after some other update, so that ratios differ from 1 and some are clipped."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)


def gradient(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


PLAIN = [name for name, arm in load().arms.items() if not arm.profile and arm.plan == ("uniform", {})]
LENGTHS = ("overlong", "shorter-better", "finished-only")  # a reward and advantages that go by them


@pytest.mark.parametrize("arm, kl", [*((arm, 0.0) for arm in (*PLAIN, *LENGTHS)), ("cost-aware", 0.1)])
def test_one_step_is_the_embedded_engines(arm, kl, tmp_path, monkeypatch):
    """The same groups (refilled ones too), rows, weights and tokens; and each mini-batch's loss and gradient, at the
    weights that sampled and at others, where ratios are clipped."""
    given = load().arm(arm).engine.given
    kl = given.get("kl", kl)
    changes = {"beta": kl, "weight_decay": given.get("weight_decay", 0.0), "max_steps": given.get("steps", 4)}
    reward_with(monkeypatch, parity)
    engine = new_trainer(load().arm(arm), temperature=1.0, kl=kl, steps=4)
    original = copy.deepcopy(engine.model)
    groups, _ = engine.collect(0)
    rollouts = engine._rollouts(groups)
    theirs = engine.select(0, rollouts, engine.done(0))
    order = engine.rng(0, "shuffle").permutation(len(theirs))
    parts = [theirs.take(rows) for rows in np.array_split(order, UPDATES)]

    if kl:
        monkeypatch.setattr("trl.trainer.grpo_trainer.create_model_from_path", lambda *_, **__: copy.deepcopy(original))
    trainer = trainer_on_trl(tmp_path, arm, changes=changes, refill_rounds=ENGINE.refill_rounds)
    trainer.model.load_state_dict(original.state_dict())
    samples_like_the_engine(trainer, original)
    chosen = []
    monkeypatch.setattr(
        trainer, "_select", lambda batch, select=trainer._select: chosen.append(select(batch)) or chosen[0]
    )
    trainer.model.train()
    examples = [{"prompt": engine.data.train[query].prompt} for query in groups.query_N]
    trainer._prepare_inputs(examples)
    [ours] = chosen
    np.testing.assert_array_equal(ours.row_N, theirs.row_N)
    np.testing.assert_array_equal(ours.response_mask_N_T, theirs.response_mask_N_T)
    np.testing.assert_array_equal(ours.costs_N, theirs.costs_N)
    np.testing.assert_allclose(ours.weights_N, theirs.weights_N, rtol=1e-5)
    np.testing.assert_allclose(ours.advantages_N, theirs.advantages_N, rtol=1e-12)

    here = _gradients(engine, trainer, groups, parts)
    for model in (engine.model, trainer.model):
        moved(model)
    assert max(*here, *_gradients(engine, trainer, groups, parts)) > 1e-3
    assert trainer.ledger.trained_tokens == 2 * sum(_read_tokens(part, kl) for part in parts)
    assert trainer.ledger.paper_tokens == 2 * sum(part.costs_N.sum() for part in parts)
    assert trainer.ledger.generated_tokens == engine.ledger.generated_tokens


def _gradients(engine, trainer, groups, parts):
    """The norm of each mini-batch's gradient, the same on both; TRL's slices of it add up."""
    batch = Batch([engine.prompts[query] for query in groups.query_N], groups.responses)
    how = TOKENIZER.pad_token_id, engine.update_settings, engine.reference
    slices, norms = iter(trainer._buffered_inputs), []
    for part in parts:
        engine.optimiser.zero_grad()
        sums = accumulate_gradients(engine.model, engine.method.objective, batch, part, *how)
        trainer.model.zero_grad()
        loss = 0.0
        for _ in range(ACCUMULATE):
            value = trainer.compute_loss(trainer.model, next(slices))
            value.backward()
            loss += float(value.detach())
        assert loss == pytest.approx(sums["loss"], rel=1e-4, abs=1e-6)
        ours, theirs = gradient(trainer.model), gradient(engine.model)
        norms.append(float(theirs.norm()))
        assert (ours - theirs).norm() <= 1e-4 * norms[-1]
    return norms


def _read_tokens(part, kl):
    read = np.ones(len(part), bool) if kl else (part.advantages_N != 0) & part.response_mask_N_T.any(1)
    return sum(dict(zip(part.row_N[read].tolist(), part.costs_N[read].tolist(), strict=True)).values())


def weights(trainer):
    return torch.cat([parameter.detach().flatten().clone() for parameter in trainer.model.parameters()])


def test_trains_refills_and_resumes(tmp_path):
    """zvf-cost-aware for four optimiser steps on two batches: refilled from the plan, drawn, scored and read in part;
    and a run resumed between them continues the plan and the ledger, and draws the same."""
    changes = {"save_strategy": "steps", "save_steps": 2}
    trainer = trainer_on_trl(tmp_path, "zvf-cost-aware", changes=changes)
    before = weights(trainer)
    trainer.train()
    assert (weights(trainer) != before).any()
    logs = [entry for entry in trainer.state.log_history if "arm/drawn" in entry]
    assert len(logs) == 2 and all(0 < entry["arm/distinct"] < entry["arm/drawn"] == 1 for entry in logs)
    row = trainer.ledger.row()
    assert row["updates"] == 4 and 0 < row["trained_tokens"] <= row["paper_tokens"]
    assert 0 < row["scored_tokens"] <= row["trained_tokens"]  # the old pass, of what is trained on
    assert trainer.running.plan.taken == row["queries"] >= 4
    resumed = trainer_on_trl(tmp_path, "zvf-cost-aware", changes=changes)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert resumed.running.plan.taken == resumed.ledger.queries >= 4
    assert resumed.ledger.updates == 4


def test_a_run_that_is_resumed_inside_a_batch_goes_on_with_the_rest_of_it(tmp_path):
    """Saved after one of two updates on the second batch: its other update follows, then batches at their places, of
    the prompts that they have without the stop."""

    def watched(folder, **changes):
        made, trainer = [], trainer_on_trl(folder, "grpo", changes={"max_steps": 6, **changes})
        slices = trainer._slices

        def watch(examples):
            made.append((trainer.state.global_step, trainer._index, {row["prompt"] for row in examples}))
            return slices(examples)

        trainer._slices = watch
        return trainer, made

    trainer, whole = watched(tmp_path, save_strategy="steps", save_steps=1)
    trainer.train()
    assert [step for step, _, _ in whole] == [0, 2, 4]
    for at, first, then in ((3, 1, [3, 4]), (2, 1, [2, 4]), (5, 2, [5])):
        resumed, made = watched(tmp_path / str(at))
        resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{at}"))
        assert [step for step, _, _ in made] == then and resumed.state.global_step == 6
        assert [each[1:] for each in made] == [each[1:] for each in whole[first:]]


@pytest.mark.parametrize("arm", ["grpo", "pods", "d3s", "cost-aware"])
def test_completions_without_a_token_are_not_drawn(arm, tmp_path):
    """TRL masks those that were cut off; nearly all are, at six tokens."""
    changes = {"mask_truncated_completions": True, "max_completion_length": 6, "max_steps": 2}
    trainer, drawn = trainer_on_trl(tmp_path, arm, changes=changes), []
    select = trainer._select

    def watch(batch):
        live_N = batch.mask_N_T.any(1).numpy()
        chosen = select(batch)
        drawn.append((live_N, None if chosen is None else live_N[chosen.row_N]))
        return chosen

    trainer._select = watch
    trainer.train()
    assert any(0 < live_N.sum() < len(live_N) for live_N, _ in drawn)
    assert all(chosen is None or chosen.all() for _, chosen in drawn) and any(c is not None for _, c in drawn)


def shorter(completion_ids, **_):
    return [1.0 - 0.001 * len(ids) - 1e-5 * sum(ids) for ids in completion_ids]


def two_of(completion_ids, **_):
    """1 for the texts of the groups' first halves: some groups vary by it, and the others do not."""
    return [float(sum(ids[:1]) % 3 == 0) for ids in completion_ids]


@pytest.mark.parametrize("arm", ["zvf", "pods", "d3s"])
def test_a_named_reward_tells_rollouts_apart_and_the_sum_is_trained_on(arm, tmp_path):
    rewards, seen = [two_of, shorter], []
    with pytest.warns(UserWarning, match="apart by the sum of two_of, shorter: a bonus for length"):
        trainer_on_trl(tmp_path, arm, reward=rewards)
    trainer = trainer_on_trl(tmp_path, arm, reward=rewards, signal_reward="two_of", changes={"max_steps": 2})
    select = trainer._select

    def watch(batch):
        seen.append((batch, select(batch)))
        return seen[-1][1]

    trainer._select = watch
    trainer.train()
    batch, chosen = seen[0]
    groups = {group: batch.named_N[batch.group_N == group] for group in np.unique(batch.group_N)}
    assert set(batch.named_N) == {0.0, 1.0} and len(set(batch.rewards_N)) > 2
    if arm == "zvf":
        assert all(np.ptp(named) > 0 for named in groups.values())
        np.testing.assert_allclose(chosen.rewards_N, batch.rewards_N[chosen.row_N])
    else:  # of a group that varies they keep rollouts of either kind
        for group in np.unique(chosen.group_N):
            kept_M = batch.named_N[chosen.row_N[chosen.group_N == group]]
            assert arm == "d3s" or np.ptp(groups[group]) == np.ptp(kept_M)
        np.testing.assert_array_equal(chosen.rewards_N, batch.rewards_N[chosen.row_N])
    if arm == "d3s":
        expected_N = trainer.method.advantages(0, batch.rewards_N, batch.group_N, batch.lengths)[chosen.row_N]
    elif arm == "pods":
        own = chosen.rewards_N, chosen.group_N, batch.lengths.take(chosen.row_N)
        expected_N = trainer.method.advantages(0, *own)
    else:
        return
    np.testing.assert_allclose(chosen.advantages_N, expected_N)
    with pytest.raises(SettingsError, match=r"signal_reward 'two_off' is the name of no reward function.*two_of"):
        trainer_on_trl(tmp_path, arm, reward=rewards, signal_reward="two_off")


def test_nothing_to_learn_from_leaves_the_weights(tmp_path):
    trainer = trainer_on_trl(tmp_path, "zvf", reward=lambda completions, **_: [1.0] * len(completions), refill_rounds=2)
    before = weights(trainer)
    trainer.train()
    assert (weights(trainer) == before).all() and trainer.ledger.updates == 0
    assert trainer.ledger.rollouts == 2 * 2 * ROLLOUTS  # two batches, each generated twice


def longest(rollouts: Rollouts, progress, rng) -> Rollouts:
    """The four longest, twice as heavy."""
    rows = np.argsort(-rollouts.costs_N, kind="stable")[:4]
    return rollouts.take(rows, np.full(4, 2.0))


def surest(rollouts: Rollouts, progress, rng) -> Rollouts:
    return rollouts.take(np.argsort(rollouts.entropy_N_T.sum(1))[:4])


@pytest.mark.parametrize("sampler, scored", [(longest, 0), (surest, ROLLOUTS)])
def test_ones_own_sampler_and_what_it_reads(sampler, scored, tmp_path):
    """A batch with a single update needs no old log-probabilities; entropies are computed if the sampler reads them."""
    changes = {"steps_per_generation": 2, "per_device_train_batch_size": 8, "max_steps": 1}
    trainer = trainer_on_trl(tmp_path, samplers=[sampler], changes=changes)
    widths = []
    score = trainer._score
    trainer._score = lambda model, batch, rows, **rest: widths.append(len(rows)) or score(model, batch, rows, **rest)
    trainer.train()
    assert sum(widths) == scored
    assert trainer.ledger.scored_tokens == 0 or scored
    assert 0 < trainer.ledger.trained_tokens <= 4 * 64


def test_unequal_groups_of_a_plan(tmp_path):
    """sGPO's sizes reach TRL as they are, and advantages are those of the groups."""
    count = len(pools().train)
    profile = Queries(np.ones(count, int), np.arange(count) % 3 + 1, np.full(count, 8))
    plan = {"sgpo": {"drop_trivial": False, "unsolvable_share": 1.0, "curriculum": False, "largest": 8}}
    trainer = trainer_on_trl(tmp_path, "sgpo-allocation", plan=plan, profile=profile, changes={"max_steps": 2})
    batches = []
    select = trainer._select
    trainer._select = lambda batch: batches.append(batch) or select(batch)
    trainer.train()
    [batch] = batches
    _, size_Q = np.unique(batch.group_N, return_counts=True)
    assert len(set(size_Q)) > 1 and ROLLOUTS - 8 < len(batch) <= ROLLOUTS
    prompts = [
        tuple(ids[mask.bool()].tolist())
        for ids, mask in zip(*map(batch.tensors.get, ("prompt_ids", "prompt_mask")), strict=True)
    ]
    starts = [0, *(1 + at for at, (one, other) in enumerate(pairwise(prompts)) if one != other)]
    assert np.diff([*starts, len(batch)]).tolist() == size_Q.tolist()


def test_refusals(tmp_path):
    for arm, parts, changes, words in [
        ("sgpo", {}, {}, "pass profile="),
        ("sgpo-again-1", {}, {}, "profile the queries during training"),
        ("costaware", {}, {}, "there is no arm 'costaware'"),
        ("grpo", {}, {"loss_type": "grpo"}, "loss_type='grpo'. would have no effect"),
        ("grpo", {"objective": None, "advantage": "rloo"}, {"scale_rewards": "none"}, "scale_rewards='none'. would"),
        ("overlong", {"objective": None}, {"multi_objective_aggregation": "normalize_then_sum"}, "without .*`reward`"),
        ("cispo", {"objective": None}, {}, r"CISPO has a loss of its own: choose ArmTrainer.objective='arm'"),
        ("grpo", {"objective": None, "aggregation": "token-mean"}, {}, "has no effect on TRL's loss: add objective"),
        ("mopps", {}, {"shuffle_dataset": False}, "shuffle_dataset=False. would have no effect: plan mopps chooses"),
        ("grpo-kl-decay", {}, {}, "give it GRPOConfig.weight_decay=0.1, beta=0.001."),
        ("d3s-32", {}, {}, "num_generations=32"),
        ("grpo", {}, {"gradient_accumulation_steps": 8}, "is not a multiple of gradient_accumulation_steps"),
        ("grpo", {"samplers": ["cost_awar"]}, {}, r"^ArmTrainer\(samplers=\): .* did you mean 'cost_aware'"),
        ("zvf", {"refill_rounds": -3}, {}, "refill_rounds is -3: give a whole number of at least 1"),
    ]:
        with pytest.raises((SettingsError, TypeError, MethodError), match=words):
            trainer_on_trl(tmp_path, arm, changes=changes, **parts)


def test_the_example_on_ones_own_data(tmp_path, monkeypatch):
    """At most 25 lines: a policy on disk, questions in a file, a filter, a sampler of one's own and one of ours."""
    script = Path(__file__).resolve().parents[1] / "notebooks" / "tutorials" / "trl_own_data.py"
    assert len(script.read_text().splitlines()) <= 25
    torch.manual_seed(0)
    save_policy(build_qwen2(hidden=16, layers=1, heads=2, max_length=64), build_tokenizer(), tmp_path / "model")
    rows = [{"prompt": query.prompt, "answer": str(at % 10)} for at, query in enumerate(pools().train)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = {"output_dir": tmp_path / "out", "max_steps": 1, "per_device_train_batch_size": 16, "use_cpu": True}
    options |= {"max_completion_length": 8, "report_to": "none", "bf16": False, "gradient_checkpointing": False}
    words = [f"--{name}={value}" for name, value in options.items()]
    monkeypatch.setattr("sys.argv", [script.name, str(tmp_path / "model"), str(tmp_path / "data.jsonl"), *words])
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    left = runpy.run_path(str(script))
    assert left["trainer"].ledger.rollouts >= 16
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_the_tutorials_cells_train(tmp_path, monkeypatch):
    (tmp_path / "a/b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a/b")  # it writes to ../../build
    path, left = Path(__file__).resolve().parents[1] / "notebooks/tutorials/trl.ipynb", {}
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        exec("".join(cell["source"]).replace("steps = 6", "steps = 1"), left)
    assert left["trainer"].state.global_step == 1 and left["trainer"].ledger.rollouts >= 64


def test_replacing_a_field_reads_no_entropy():
    from repro.methods.unscored import Unscored

    def never():
        raise AssertionError("read")

    def values():
        return {"entropy_N_T": np.ones((3, 2)), "logprob_N_T": -np.ones((3, 2))}

    rows = dict(group_N=[0, 0, 0], rewards_N=[0, 1, 1], advantages_N=[-1.0, 1, 1], prompt_tokens_N=[1, 1, 1])
    rollouts = Rollouts.from_batch(**rows, response_tokens_N=[2, 1, 2])
    taken = replace(Unscored.of(rollouts, never).take(np.array([2, 0])), advantages_N=np.ones(2))
    assert taken.with_mask(np.zeros((2, 2), bool)).row_N.tolist() == [2, 0]
    with pytest.raises(AssertionError, match="read"):
        _ = taken.logprob_N_T
    again = replace(Unscored.of(rollouts, values).take(np.array([2, 0])), advantages_N=np.ones(2))
    assert again.entropy_N_T.tolist() == [[1, 1], [1, 1]] and not again.plain.entropy_N_T.any()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_step_on_cuda_is_the_cpus(tmp_path):
    """The same responses: the same rows are chosen, and the gradient is close."""
    here, there = (step_on(device, tmp_path) for device in ("cpu", "cuda"))
    np.testing.assert_array_equal(there[0], here[0])
    assert (there[1] - here[1]).norm() <= 1e-3 * here[1].norm() and here[1].norm() > 0


def step_on(device, folder):
    """(rows chosen in the first batch, the gradient of its first update)."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)  # one for each process, which knows its device
    trainer = trainer_on_trl(folder / device, "zvf-cost-aware", changes={"use_cpu": device == "cpu"})
    assert trainer.model.device.type == device
    samples_like_the_engine(trainer, copy.deepcopy(trainer.model).cpu())
    chosen, select = [], trainer._select
    trainer._select = lambda batch: chosen.append(select(batch)) or chosen[-1]
    trainer.model.train()
    trainer._prepare_inputs([dict(row) for row in trainer.train_dataset for _ in range(GROUP)])
    for part in trainer._buffered_inputs[:ACCUMULATE]:
        trainer.compute_loss(trainer.model, part).backward()
    return chosen[0].row_N, gradient(trainer.model).cpu()
