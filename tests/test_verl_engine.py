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
from test_engine_generate import sample, sharpen

from repro.arms import Method, build
from repro.methods.objectives.aggregate import token_coefficients
from repro.methods.rollouts import Rollouts
from repro.policy.model import build_qwen2, save_policy
from repro.settings import Arm
from repro.tasks.tokenizer import build_tokenizer
from repro.verl.batch import nested, scoring_rows, training_rows

pytestmark = pytest.mark.verl

HERE = Path(__file__).parent
PROMPTS_Q = [[1, 5, 6], [1, 4, 9, 12, 3, 8, 7, 6], [1, 7, 7, 13, 5], [1, 9, 9]]
GROUP, LONGEST = 3, 24
OBJECTIVES = {"grpo": {}, "gspo": {"clip_low": 0.02, "clip_high": 0.03}, "cispo": {"clip_high": 0.2}}
AGGREGATIONS = ("sequence-mean", "token-mean", "constant-length", "group-mean")
KL, ENTROPY = {"kl": 0.3}, {"entropy": 0.2}
KINDS = {  # registered: the objective as a policy loss of its own; merge: draws of one rollout are one row
    "drawn": {"registered": False, "merge": False, "terms": {}},
    "merged": {"registered": False, "merge": True, "terms": {}},
    "kl": {"registered": False, "merge": False, "terms": KL},
    "kl-merged": {"registered": False, "merge": True, "terms": KL},
    "registered": {"registered": True, "merge": True, "terms": KL | ENTROPY},
}
CASES = [(o, a, kind) for o in OBJECTIVES for a in AGGREGATIONS for kind in KINDS]


@dataclass
class Case:
    """A policy that has moved since `rollouts` were drawn from it, as verl holds them."""

    model: torch.nn.Module
    prompts_N: list[list[int]]
    responses: object
    rollouts: Rollouts
    fields: TensorDict

    def part(self) -> Rollouts:
        """9 rows of 12: one rollout twice under two masks, one three times under one, one without advantage, one wholly
        masked; weights far from 1, a third of the tokens masked."""
        rng = np.random.default_rng(3)
        part = self.rollouts.take(np.array([0, 8, 8, 11, 2, 5, 10, 10, 10]), rng.uniform(0.1, 4.0, 9))
        keep_M_T = rng.random(part.response_mask_N_T.shape) < 0.67
        keep_M_T[:, 0], keep_M_T[3], keep_M_T[7:] = True, False, keep_M_T[6]
        return part.with_mask(keep_M_T)


@pytest.fixture(scope="module")
def case() -> Case:
    torch.manual_seed(0)
    model = sharpen(build_qwen2(hidden=16, layers=2, heads=2, max_length=64))
    responses = sample(model, PROMPTS_Q, [GROUP] * len(PROMPTS_Q), LONGEST, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.03 * parameter.std().nan_to_num(0.0) * torch.randn(parameter.shape, generator=generator))
    prompts_N = [prompt for prompt in PROMPTS_Q for _ in range(GROUP)]
    lengths_N = responses.mask_N_T.sum(1).tolist()
    rollouts = Rollouts.from_batch(
        group_N=np.repeat(np.arange(len(PROMPTS_Q)), GROUP),
        rewards_N=np.zeros(len(prompts_N)),
        advantages_N=np.random.default_rng(2).normal(size=len(prompts_N)) * (np.arange(len(prompts_N)) != 2),
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
        "response_mask": nested([torch.ones_like(answer) for answer in answers]),
        "old_log_probs": nested(old),
        "ref_log_prob": nested([0.5 * values for values in old]),
    }
    return Case(model, prompts_N, responses, rollouts, TensorDict(fields, batch_size=[len(prompts_N)]))


def method_of(objective: str, aggregation: str) -> Method:
    arm = Arm(title="t", about="", group="g", objective={objective: OBJECTIVES[objective]}, aggregation=aggregation)
    return build("an arm", arm)


def brute_force(case: Case, part: Rollouts, method: Method, kl: float, entropy: float) -> dict[str, torch.Tensor]:
    """Σ_m ∇ (w_m · loss of row m alone + kl · k3 − entropy · H), one sequence a pass, no padding, no slices."""
    model = copy.deepcopy(case.model)
    coefficient_M_T = token_coefficients(part.response_mask_N_T, method.aggregation, LONGEST, part.group_weight_N)
    total = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    for m, row in enumerate(part.row_N):
        prompt, length = case.prompts_N[row], int(part.response_tokens_N[m])
        answer = case.responses.ids_N_T[row, :length].clone()  # made in inference mode
        logits = model(torch.cat([torch.tensor(prompt), answer])[None]).logits[0, len(prompt) - 1 : -1]
        log_p_T_V = torch.log_softmax(logits.float(), -1)
        logprob = log_p_T_V.gather(1, answer[:, None])[:, 0]
        mask = torch.as_tensor(part.response_mask_N_T[m, :length])[None]
        advantage = torch.tensor([part.advantages_N[m]], dtype=torch.float32)
        old = case.responses.logprob_N_T[row, :length][None].clone()
        loss_1_T = method.objective(logprob[None], old, advantage, mask).loss_N_T
        gap_T = 0.5 * old[0] - logprob  # to the reference
        terms_T = kl * (gap_T.exp() - 1 - gap_T) + entropy * (log_p_T_V.exp() * log_p_T_V).sum(1)
        coefficient = torch.as_tensor(coefficient_M_T[m, :length], dtype=torch.float32)
        model.zero_grad()
        ((float(part.weights_N[m]) * loss_1_T[0] + terms_T) * coefficient).sum().backward()
        for name, parameter in model.named_parameters():
            total[name] += parameter.grad
    return total


@pytest.fixture(scope="module")
def moved(case, tmp_path_factory):
    """{ranks: {case: (gradient, loss, norm)}} of verl's engine with one and with two ranks."""
    folder = tmp_path_factory.mktemp("engine")
    save_policy(case.model, build_tokenizer(), folder / "policy")
    cases = {
        (objective, aggregation, kind): (method_of(objective, aggregation), case.part(), KINDS[kind])
        for objective, aggregation, kind in CASES
    }
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
@pytest.mark.parametrize(("objective", "aggregation", "kind"), CASES)
def test_the_weighted_gradient_is_that_of_brute_force(case, moved, objective, aggregation, kind, ranks):
    """Also where draws of a rollout were merged, with a term of KL divergence or entropy, of which each has its share;
    and where the objective goes to verl as a loss of its own."""
    terms = KINDS[kind]["terms"]
    expected = brute_force(
        case, case.part(), method_of(objective, aggregation), terms.get("kl", 0.0), terms.get("entropy", 0.0)
    )
    got, _, norm, rows = moved[ranks][objective, aggregation, kind]
    assert rows == (9 if not KINDS[kind]["merge"] else 6 if terms else 5)
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
    assert len(masks) == 12
    assert sum(int(mask.sum()) for mask in masks) == part.response_mask_N_T.sum()
    weighted = sorted(float(row[0]) for row in rows["advantages"].unbind())
    assert weighted == pytest.approx(sorted([*(part.advantages_N * part.weights_N), 0.0, 0.0, 0.0]), abs=1e-6)
    loads = [sum(costs[start : start + 3]) for start in range(0, 12, 3)]
    assert max(loads) - min(loads) <= max(costs)


def test_scored_rows_are_found_again(case):
    """Rows of a scoring pass are in another order, filled up for the ranks; the fillers have no token."""
    row_U = np.array([1, 4, 7, 8, 10])
    rows, place_U = scoring_rows(case.fields, row_U, case.rollouts.costs_N[row_U], ranks=2)
    masks, ids = rows["response_mask"].unbind(), rows["input_ids"].unbind()
    assert len(ids) == 6 and sum(int(mask.sum()) == 0 for mask in masks) == 1
    for row, place in zip(row_U, place_U, strict=True):
        assert torch.equal(ids[place], case.fields["input_ids"].unbind()[row]) and masks[place].all()


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
