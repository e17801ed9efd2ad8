"""verl's engine against brute force: weights, draws with replacement, masks, subsets of any size, two ranks."""

import copy
import os
import socket
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensordict", reason="verl is not installed here: `make extra-verl` installs it")

import torch
from tensordict import TensorDict

from repro.arms import Method, build
from repro.engine.generate import generate
from repro.methods.objectives.aggregate import token_coefficients
from repro.methods.rollouts import Rollouts
from repro.policy.model import build_qwen2, save_policy
from repro.settings import Arm
from repro.tasks.tokenizer import EOS, PAD, SYMBOLS, build_tokenizer
from repro.verl.batch import nested, training_rows

pytestmark = pytest.mark.verl

HERE = Path(__file__).parent
PROMPTS_Q = [[1, 5, 6], [1, 4, 9, 12, 3, 8, 7, 6], [1, 7, 7, 13, 5], [1, 9, 9]]
GROUP, LONGEST = 3, 24
OBJECTIVES = {"grpo": {}, "gspo": {"clip_low": 0.02, "clip_high": 0.03}, "cispo": {"clip_high": 0.2}}
AGGREGATIONS = ("sequence-mean", "token-mean", "constant-length", "group-mean")


@dataclass
class Case:
    """A policy that has moved since `rollouts` were drawn from it, as verl holds them."""

    model: torch.nn.Module
    prompts_N: list[list[int]]
    responses: object
    rollouts: Rollouts
    fields: TensorDict

    def part(self) -> Rollouts:
        """7 rows of 12, one of them twice, weights far from 1, a third of the tokens masked, one row wholly."""
        rng = np.random.default_rng(3)
        part = self.rollouts.take(np.array([0, 5, 5, 11, 2, 8, 9]), rng.uniform(0.1, 4.0, 7))
        keep_M_T = rng.random(part.response_mask_N_T.shape) < 0.67
        keep_M_T[:, 0], keep_M_T[3] = True, False
        return part.with_mask(keep_M_T)


@pytest.fixture(scope="module")
def case() -> Case:
    torch.manual_seed(0)
    model = build_qwen2(hidden=16, layers=2, heads=2, max_length=64).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8.0)
    generator = torch.Generator().manual_seed(1)
    responses = generate(
        model,
        PROMPTS_Q,
        [GROUP] * len(PROMPTS_Q),
        max_new_tokens=LONGEST,
        eos=SYMBOLS.index(EOS),
        pad=SYMBOLS.index(PAD),
        temperature=1.0,
        generator=generator,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.03 * parameter.std().nan_to_num(0.0) * torch.randn(parameter.shape, generator=generator))
    prompts_N = [prompt for prompt in PROMPTS_Q for _ in range(GROUP)]
    lengths_N = responses.mask_N_T.sum(1).tolist()
    rollouts = Rollouts.from_batch(
        group_N=np.repeat(np.arange(len(PROMPTS_Q)), GROUP),
        rewards_N=np.zeros(len(prompts_N)),
        advantages_N=np.random.default_rng(2).normal(size=len(prompts_N)),
        prompt_tokens_N=responses.prompt_tokens_N.numpy(),
        response_tokens_N=np.array(lengths_N),
        response_mask_N_T=responses.mask_N_T.numpy(),
    )
    answers = [ids[:length] for ids, length in zip(responses.ids_N_T, lengths_N, strict=True)]
    whole = [torch.cat([torch.tensor(prompt), answer]) for prompt, answer in zip(prompts_N, answers, strict=True)]
    old = [values[:length] for values, length in zip(responses.logprob_N_T, lengths_N, strict=True)]
    fields = {
        "prompts": nested([torch.tensor(prompt) for prompt in prompts_N]),
        "responses": nested(answers),
        "input_ids": nested(whole),
        "position_ids": nested([torch.arange(len(row)) for row in whole]),
        "old_log_probs": nested(old),
    }
    return Case(model, prompts_N, responses, rollouts, TensorDict(fields, batch_size=[len(prompts_N)]))


def method_of(objective: str, aggregation: str) -> Method:
    arm = Arm(title="t", about="", group="g", objective={objective: OBJECTIVES[objective]}, aggregation=aggregation)
    return build("an arm", arm)


def brute_force(case: Case, part: Rollouts, method: Method) -> dict[str, torch.Tensor]:
    """Σ_m w_m · ∇ (loss of row m alone), one sequence a pass, no padding, no slices."""
    model = copy.deepcopy(case.model)
    coefficient_M_T = token_coefficients(part.response_mask_N_T, method.aggregation, LONGEST, part.group_weight_N)
    total = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    for m, row in enumerate(part.row_N):
        prompt, length = case.prompts_N[row], int(part.response_tokens_N[m])
        answer = case.responses.ids_N_T[row, :length].clone()  # made in inference mode
        logits = model(torch.cat([torch.tensor(prompt), answer])[None]).logits[0, len(prompt) - 1 : -1]
        logprob = torch.log_softmax(logits.float(), -1).gather(1, answer[:, None])[:, 0]
        mask = torch.as_tensor(part.response_mask_N_T[m, :length])[None]
        advantage = torch.tensor([part.advantages_N[m]], dtype=torch.float32)
        old = case.responses.logprob_N_T[row, :length][None].clone()
        loss_1_T = method.objective(logprob[None], old, advantage, mask).loss_N_T
        coefficient = torch.as_tensor(coefficient_M_T[m, :length], dtype=torch.float32)
        model.zero_grad()
        (loss_1_T[0] * coefficient).sum().backward()
        for name, parameter in model.named_parameters():
            total[name] += float(part.weights_N[m]) * parameter.grad
    return total


@pytest.fixture(scope="module")
def moved(case, tmp_path_factory):
    """{ranks: {case: (gradient, loss, norm)}} of verl's engine with one and with two ranks."""
    folder = tmp_path_factory.mktemp("engine")
    save_policy(case.model, build_tokenizer(), folder / "policy")
    cases = {(o, a): (method_of(o, a), case.part(), False) for o in OBJECTIVES for a in AGGREGATIONS}
    cases |= {(o, "registered"): (method_of(o, "token-mean"), case.part(), True) for o in OBJECTIVES}
    torch.save({"cases": cases, "fields": case.fields}, folder / "cases.pt")
    return {ranks: run_ranks(folder, ranks) for ranks in (1, 2)}


def run_ranks(folder: Path, ranks: int) -> dict:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        **os.environ,
        "VERL_PLATFORM": "cpu",
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": "0",
        "REPRO_ROOT": str(HERE.parent),
    }
    command = [sys.executable, str(HERE / "verl_rank.py"), str(folder)]
    started = [
        subprocess.Popen(command, env={**common, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    errors = [process.communicate(timeout=900)[1] for process in started]
    assert [process.returncode for process in started] == [0] * ranks, "\n".join(errors)[-4000:]
    return torch.load(folder / f"moved-{ranks}.pt", weights_only=False)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("aggregation", [*AGGREGATIONS, "registered"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_weighted_gradient_is_that_of_brute_force(case, moved, objective, aggregation, ranks):
    method = method_of(objective, "token-mean" if aggregation == "registered" else aggregation)
    expected = brute_force(case, case.part(), method)
    got, _, norm = moved[ranks][objective, aggregation]
    scale = max(float(value.abs().max()) for value in expected.values())
    assert scale > 1e-3  # there is something to compare
    for name, value in expected.items():
        # Weights are 1 or so, and a step is read off them in single precision.
        torch.testing.assert_close(got[name], value, rtol=1e-4, atol=2e-6 + 1e-5 * scale)
    assert norm == pytest.approx(float(torch.cat([g.flatten() for g in expected.values()]).norm()), rel=1e-4)


def test_rows_are_filled_up_to_the_ranks_without_a_token_that_counts(case):
    part = case.part()
    rows = training_rows(case.fields, part, 4)
    masks, costs = rows["loss_mask"].unbind(), [len(row) for row in rows["input_ids"].unbind()]
    assert len(masks) == 8
    assert sum(int(mask.sum()) for mask in masks) == part.response_mask_N_T.sum()
    weighted = sorted(float(row[0]) for row in rows["advantages"].unbind())
    assert weighted == pytest.approx(sorted([*(part.advantages_N * part.weights_N), 0.0]), abs=1e-6)
    halves = [sum(costs[:2]), sum(costs[2:4]), sum(costs[4:6]), sum(costs[6:])]
    assert max(halves) - min(halves) <= max(costs)


def test_under_group_mean_the_weight_of_its_group_multiplies_an_advantage(case):
    n = len(case.rollouts)
    whole = replace(case.rollouts, group_weight_N=np.linspace(0.5, 1.5, n))
    weighted = {name: training_rows(case.fields, whole, 1, name)["advantages"].unbind() for name in AGGREGATIONS}
    for name, rows in weighted.items():
        factor_N = whole.group_weight_N if name == "group-mean" else np.ones(n)
        assert [float(row[0]) for row in rows] == pytest.approx(whole.advantages_N * factor_N, abs=1e-6)


def test_equally_many_rows_are_left_alone(case):
    whole = case.rollouts
    rows = training_rows(case.fields, whole, 1)
    for name in ("input_ids", "old_log_probs"):
        pairs = zip(rows[name].unbind(), case.fields[name].unbind(), strict=True)
        assert all(torch.equal(mine, theirs) for mine, theirs in pairs)
    assert [float(row[0]) for row in rows["advantages"].unbind()] == pytest.approx(whole.advantages_N, abs=1e-6)
