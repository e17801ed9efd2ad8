"""What is measured before training: gradients against autograd, closed forms, a predictor found where there is one."""

import numpy as np
import pandas as pd
import pytest
import torch
from tiny_run import ENGINE, EVALUATION, ROLLOUTS, parity, pools, reward_with

from repro.arms import build
from repro.engine.batch import Groups
from repro.engine.train import Data
from repro.experiments import predictor
from repro.experiments.predictor import QUANTITIES, Pair, Untrained
from repro.policy.adapters import adapt
from repro.policy.model import build_qwen2
from repro.settings import Arm, Statistics, load
from repro.tasks.tokenizer import build_tokenizer

STATISTICS = Statistics(resamples=100, seed=0, confidence=0.95, levels=[0.9])
BASELINE = "grpo"


def everything(rollouts, progress, rng):
    return rollouts.take(np.arange(len(rollouts)))


def untrained(drawn: dict, adapted: bool = False, **parts) -> Untrained:
    torch.manual_seed(0)
    model = build_qwen2(hidden=16, layers=1, heads=2, max_length=64).eval()
    learner = adapt(model, 2, 1, seed=0) if adapted else model, build_tokenizer()
    method = build("an arm", Arm(title="an arm", about="", group="", **parts))
    return Untrained(method, ENGINE, EVALUATION, learner, Data(pools().train, []), 0, drawn)


@pytest.fixture(autouse=True)
def half_are_right(monkeypatch):
    reward_with(monkeypatch, parity)


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("aggregation", ["sequence-mean", "constant-length"])
def test_gradients_are_those_of_their_losses_by_autograd(aggregation, adapted):
    """A batch's is that of GRPO's loss; the references' are such means of many, the reward's with losses summed. Where
    adapters train, over these alone."""
    run = untrained({}, adapted, aggregation=aggregation)
    gradient_P, row = run.batch(0)
    groups: Groups = next(iter(run.drawn.values()))[0]
    rollouts, loss = run._rollouts(groups), 0.0
    for n, query in enumerate(groups.query_N):
        prompt, mask_T = run.prompts[query], groups.responses.mask_N_T[n]
        ids = torch.tensor([[*prompt, *groups.responses.ids_N_T[n, mask_T].tolist()]])
        logprob_L_V = run.model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        chosen_L = logprob_L_V.gather(1, ids[0, len(prompt) :, None])
        each = chosen_L.mean() if aggregation == "sequence-mean" else chosen_L.sum() / ENGINE.max_new_tokens
        loss -= rollouts.advantages_N[n] * each / ROLLOUTS
    expected = torch.autograd.grad(loss, run.learning)
    torch.testing.assert_close(gradient_P, torch.cat([part.flatten() for part in expected]), rtol=1e-3, atol=1e-6)
    assert adapted == (len(gradient_P) < sum(p.numel() for p in run.model.parameters()))
    assert row["distinct"] == (rollouts.advantages_N != 0).mean() > 0
    assert row["tokens"] == rollouts.costs_N[rollouts.advantages_N != 0].sum()
    references = run.references(4)
    for of in ("GRPO", "reward"):
        halves = torch.stack([references[f"{of}, {half}"] for half in predictor.HALVES])
        torch.testing.assert_close(references[of], halves.sum(0))


def test_an_arm_that_keeps_everything_is_the_baseline_and_draws_nothing_anew():
    drawn: dict = {}
    runs = [untrained(drawn, **parts) for parts in ({}, {"samplers": [everything]}, {"filter": "zero_variance"})]
    batches = [run.batch(0) for run in runs]
    torch.testing.assert_close(batches[1][0], batches[0][0])
    assert batches[1][1] == batches[0][1] and len({place[0] for place in drawn}) == 1
    alone = untrained({}, filter="zero_variance").batch(0)  # refilled with the same groups as if nothing had been drawn
    torch.testing.assert_close(batches[2][0], alone[0])
    assert batches[2][1] == alone[1] and alone[1]["generation"] > batches[0][1]["generation"]
    rows = [
        {
            "policy": "i",
            "arm": arm,
            "step": step,
            **row,
            "square": 4.0,
            "mean_square": 3.0,
            "with GRPO": 2.0,
            "with reward": 1.0,
        }
        for arm, (_, row) in zip((BASELINE, "all"), batches, strict=False)
        for step in range(2)
    ]
    told = predictor.quantities(pd.DataFrame(rows), 0.75, BASELINE).set_index("arm")
    assert told.loc["all", [*QUANTITIES]].to_list() == told.loc[BASELINE, [*QUANTITIES]].to_list()
    assert told.loc["all", ["bill", "cosine, GRPO", "cosine², reward"]].to_list() == [1.0, 1.0, 0.25]


def test_quantities_by_hand():
    """Two batches (1, 1) and (1, −1) have the mean (1, 0), and 0 = (1, 1)·(1, −1) of pairs: the least, 2/100. Of the
    arm, (2, 1) and (2, −1): ‖g‖² = 5 and ‖E g‖² = 3. At a price of 1/2 a FLOP of generation is 2 of GRPO's."""
    same = {"policy": "i", "per_distinct": 1.0, "silent": 0.5, "distinct": 0.5, "tokens": 10.0, "generation": 1.0}
    grpo = {"arm": BASELINE, "training": 2.0, "square": 2.0, "mean_square": 1.0, "with GRPO": 1.0, "with reward": 1.0}
    own = {"arm": "own", "training": 1.0, "square": 5.0, "mean_square": 4.0, "with GRPO": 2.0, "with reward": 2.0}
    rows = [{**same, **of, "step": step} for of in (grpo, own) for step in range(2)]
    told = predictor.quantities(pd.DataFrame(rows), 0.5, BASELINE).set_index("arm")
    assert told["bill"].to_list() == [1.0, 0.75] and told.at["own", "batches"] == 4 / 3
    assert told.at["own", "cosine, GRPO"] == pytest.approx(2 / 5**0.5 / 0.75)
    assert told.at["own", "cosine², GRPO"] == pytest.approx(4 / 5 / 0.75)
    assert told.at["own", "aim, reward"] == pytest.approx(2 / 3**0.5)
    assert told["variance per token"].to_list() == pytest.approx([np.log(99 * 10), np.log(2 / 3 * 10)])
    assert told.at["own", "variance for the bill"] == pytest.approx(np.log(2 / 3 * 0.75))


def planted(rng: np.random.Generator, noise: float, like: pd.DataFrame | None = None) -> pd.DataFrame:
    if like is None:
        like = pd.DataFrame(
            np.repeat(rng.normal(size=(20, 1)), 8, 1), [f"arm-{n}" for n in range(20)], list("ijklmnop")
        )
    return like + rng.normal(0, noise, like.shape)


def test_a_planted_predictor_is_found_and_a_random_one_is_not():
    rng = np.random.default_rng(0)
    y = {price: planted(rng, 0.3) for price in (0.27, 0.75)}
    kinds = {"batches": 1.0, "variance per token": -1.0, "effective": -1.0}  # the last has the wrong sign

    def asked(noise: float) -> pd.DataFrame:
        known = [
            Pair(name, price, sign * planted(rng, noise, of), of)
            for name, sign in kinds.items()
            for price, of in y.items()
        ]
        random = [Pair("trained", price, planted(rng, 0.3), of) for price, of in y.items()]
        return predictor.correlated([*known, *random], STATISTICS)

    own, alike = asked(0.3), asked(1.0)
    found = predictor.predicts(own, alike, STATISTICS)
    assert {name for name, holds in found.items() if holds} == {"batches", "variance per token"}
    assert own.set_index("quantity").at["batches", "arms"].to_list() == [20, 20]
    assert not any(predictor.predicts(own, alike.assign(rho=-alike["rho"]), STATISTICS).values())


def test_a_line_is_fitted_without_the_policy_that_it_predicts():
    x = pd.DataFrame([[1.0, 2.0, 3.0], [2.0, 1.0, 1.0], [0.0, 0.0, 0.0]], columns=list("ijk"))
    exact = predictor.left_out(x, 2 * x, 0.95)
    assert (
        exact["line"] == 0 and exact["gained"] == pytest.approx(1) and exact["zero"] == pytest.approx((80 / 9) ** 0.5)
    )
    y = x.assign(k=[0.0, 0.0, 6.0])  # i and j say 1·x, of k: errors 3, 1 and 6; i and k: 5/15, j and k the same
    told = predictor.left_out(x, y, 0.95)
    slopes = [5 / 15, 5 / 15, 1.0]
    squares = sum(((y[u] - b * x[u]) ** 2).sum() for u, b in zip("ijk", slopes, strict=True))
    assert told["line"] == pytest.approx((squares / 9) ** 0.5)
    means = sum(((y[u] - y.drop(columns=u).mean(axis=1)) ** 2).sum() for u in "ijk")
    assert told["mean"] == pytest.approx((means / 9) ** 0.5)


def test_an_arm_that_learns_has_no_first_batch():
    settings = load()
    out = {name for name, arm in settings.all_arms.items() if not predictor.tells(build(name, arm))}
    assert {"mopps", "replay", "bots"} <= out and not out & {"grpo", "sgpo", "speed-rl", *settings.predictor.arms}
    policy = predictor.Policy("i", None, settings)
    with pytest.raises(ValueError, match=r"predictor.arms: the steps of mopps"):
        predictor._run(policy, "mopps", (None, None), [], {})
