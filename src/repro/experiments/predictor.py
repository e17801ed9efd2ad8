"""What do a base policy's first batches say of an arm, before any training, and does it predict what training did?

Each of B batches is a step of the arm's run, evenly spread over its steps, drawn and selected as in training, but from
the base policy throughout: all arms of one plan get the same groups. Its gradient g is that of the arm's own loss, mean
over mini-batches, exact and over all parameters that train. It is held against two gradients of a large batch of the
same policy: G, GRPO's, and R, that of the expected reward, Σ_i (r_i − mean of the query's others) Σ_t ∇log π(y_it).

    cosine        E cos(g, G), E cos(g, R)
    projection    E[g·G] / (‖G‖ √E‖g‖²), which a batch of small norm hardly counts in
    aim           E[g·R] / (‖R‖ ‖E g‖): the cosine of infinitely many batches
    variance      (E‖g‖² − ‖E g‖²) / ‖E g‖², times tokens or the bill: what an error of the mean costs, as equation 8
                  of Cost-Aware Learning, (Σ p c)(Σ ‖g‖²/p), says of independent draws
    bill          what a batch costs with generation at its price, relative to GRPO's; a run has 1/bill as many batches

‖E g‖² is estimated from pairs of different batches, (B ‖mean g‖² − mean ‖g‖²) / (B − 1), without the bias of one batch
with itself, and is at least E‖g‖²/100. Arms whose plan learns, or that have a memory, make a step from those before it,
and are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from repro.arms import build
from repro.engine.batch import Groups, lengths_of
from repro.engine.log_probabilities import Batch
from repro.engine.measure import measure_profile
from repro.engine.train import Data, Trainer
from repro.engine.update import accumulate_gradients, computed_costs
from repro.engine.workers import map_in_workers
from repro.methods.advantages.rloo import rloo
from repro.methods.choice import shares
from repro.methods.method import Method
from repro.methods.plans import PlannedGroup
from repro.methods.rollouts import Rollouts
from repro.policy.adapters import load_learner
from repro.protocol.ledger import Ledger
from repro.protocol.profile import Source
from repro.protocol.streams import stream_seed
from repro.settings import Settings, Statistics, weight_at
from repro.stats import agreement as agreeing
from repro.stats.intervals import t_intervals
from repro.stats.multiplicity import holm
from repro.tasks.queries import make_pools

GROUP = 8  # of the reference
CHUNK = 32  # groups of it at a time
HALVES = ("half", "other half")
AIMS = ("GRPO", "reward")
ALIGNED = [f"{name}, {of}" for name in ("cosine", "cosine²", "projection") for of in AIMS]
# The sign with which each is expected to go with a higher end.
QUANTITIES = dict.fromkeys(["batches", *ALIGNED, "aim, reward", "effective", "trained"], 1)
QUANTITIES |= dict.fromkeys(["variance per token", "variance for the bill", "silent"], -1)


class Policy(NamedTuple):
    """A base policy: its name, the folder of its weights, and the settings of its runs."""

    name: str
    folder: Path
    settings: Settings


def tells(method: Method) -> bool:
    """Whether its steps can be had without those before them: its plan observes nothing, and it has no memory."""
    return method.memory is None and not hasattr(getattr(method.plan, "func", method.plan), "observe")


def arms_of(settings: Settings) -> list[str]:
    """The baseline, and those of `predictor.arms` that params.yaml has."""
    return [settings.baseline, *(arm for arm in settings.predictor.arms if arm in settings.all_arms)]


class Untrained(Trainer):
    """A run that stays at its base policy. `drawn`: what was generated before, by step and plan, for all runs of a
    policy and seed."""

    def __init__(
        self, method: Method, engine: Any, evaluation: Any, learner: tuple, data: Data, seed: int, drawn: dict
    ):
        super().__init__(method, engine, evaluation, learner[0], learner[0], learner[1], data, seed)
        self.drawn, self.asked = drawn, ()
        self.learning = [weights for weights in self.model.parameters() if weights.requires_grad]

    def _generate(
        self, planned: list[PlannedGroup], generator: torch.Generator, rng: np.random.Generator, step: int = 0
    ) -> Groups:
        self.asked = (*self.asked, step, *((group.query, group.size) for group in planned))
        if self.asked not in self.drawn:
            groups = super()._generate(planned, generator, rng, step)
            self.drawn[self.asked] = groups, generator.get_state()
            return groups
        groups, state = self.drawn[self.asked]
        generator.set_state(state)
        prompt_tokens_Q = np.array([len(self.prompts[group.query]) for group in planned])
        lengths = lengths_of(groups.responses, self.engine.max_new_tokens)
        sizes_Q = [group.size for group in planned]
        self.ledger.charge_generation(self.flops, prompt_tokens_Q, sizes_Q, lengths.tokens_N)
        return replace(groups, planned=planned, rewards_N=self.method.rewards(step, groups.verdicts_N, rng, lengths))

    def batch(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """(gradient_P of the loss, what the batch is: FLOPs, tokens read, and `repro.methods.choice.shares`) of a
        step; 0 where nothing is left to train on."""
        self.ledger, self.asked = Ledger(), ()
        groups, _ = self.collect(step)
        gradient_P, chosen = torch.zeros(sum(p.numel() for p in self.learning)), None
        if groups is not None:
            tokens = Batch([self.prompts[query] for query in groups.query_N], groups.responses)
            chosen = self.select(step, self._rollouts(groups, step), step / self.engine.steps)
        if chosen is not None:
            parts = self.minibatches(step, chosen, self.engine.rollouts_per_step // self.engine.minibatch)
            gradient_P = sum(self.gradient(tokens, part) for part in parts) / len(parts)
            for part in parts:
                read_U = computed_costs(part, self.update_settings)
                self.ledger.charge_update(self.flops, read_U)
                if self.update_settings.kl > 0:
                    self.ledger.charge_scoring(self.flops, read_U)
        spent = {"generation": self.ledger.flops_generate, "tokens": self.ledger.trained_tokens}
        spent |= {"training": self.ledger.flops_train + self.ledger.flops_score}
        return gradient_P, {**spent, "silent": 1.0, "per_distinct": 0.0, **shares(chosen, self.ledger.rollouts)}

    def gradient(self, tokens: Batch, part: Rollouts, aggregation: str | None = None) -> torch.Tensor:
        """gradient_P of the mini-batch's loss."""
        how = replace(self.update_settings, aggregation=aggregation or self.update_settings.aggregation)
        self.model.zero_grad(set_to_none=True)
        objective, pad = self.method.objective, self.tokenizer.pad_token_id
        accumulate_gradients(self.model, objective, tokens, part, pad, how, self.reference)
        return torch.nn.utils.parameters_to_vector(p.grad for p in self.learning)

    def references(self, groups: int) -> dict[str, torch.Tensor]:
        """{GRPO, reward: gradient_P}, of `groups` groups of every query; each also of either half of them."""
        generator = torch.Generator().manual_seed(stream_seed(self.seed, self.engine.steps, "generate"))
        sums, each, queries = {}, max(1, groups // 2), np.arange(len(self.prompts))
        for half in HALVES:
            for chunk in np.array_split(queries, -(-len(queries) * each // CHUNK)):
                planned = [PlannedGroup(int(query), GROUP) for query in np.repeat(chunk, each)]
                drawn = super()._generate(planned, generator, np.random.default_rng(0))
                tokens = Batch([self.prompts[query] for query in drawn.query_N], drawn.responses)
                rollouts, share = self._rollouts(drawn), len(chunk) / len(queries)
                rewarded = replace(rollouts, advantages_N=rloo(drawn.rewards_N, drawn.query_N))
                found = {"GRPO": self.gradient(tokens, rollouts)}
                found["reward"] = self.gradient(tokens, rewarded, "constant-length")
                for name, gradient_P in found.items():
                    for place in (name, f"{name}, {half}"):
                        sums[place] = sums.get(place, 0.0) + share * gradient_P
        return sums


def batches_of(policy: Policy) -> pd.DataFrame:
    """A row per arm and batch: policy, arm, step, what `Untrained.batch` says, `square` ‖g‖², `with GRPO` and `with
    reward` (g·G/‖G‖, g·R/‖R‖); of the arm `mean_square`, ‖mean g‖²; of the policy `agree GRPO` and `agree reward`, the
    cosine of the references' halves. ValueError names an arm of which a first batch does not tell."""
    settings, rows, drawn = policy.settings, [], {}
    learner, pools = load_learner(policy.folder, settings.engine), make_pools(settings.task, pretraining=False)
    steps = np.linspace(0, settings.engine.steps, settings.predictor.batches, endpoint=False).astype(int)
    references: dict[str, torch.Tensor] = {}
    for arm in arms_of(settings):
        run, profiled = _run(policy, arm, learner, pools.train, drawn)
        references = references or run.references(settings.predictor.reference)
        sum_P, own = 0.0, []
        for step in range(settings.engine.steps):
            if step not in steps:
                run.plan.fill_step(run.rollouts_per_step)
                continue
            gradient_P, row = run.batch(step)
            row["generation"] += profiled / settings.engine.steps
            aims = {f"with {of}": _dot(gradient_P, references[of]) / _dot(references[of]) ** 0.5 for of in AIMS}
            own.append({"policy": policy.name, "arm": arm, "step": step, **row, "square": _dot(gradient_P), **aims})
            sum_P = sum_P + gradient_P
        rows += [{**row, "mean_square": _dot(sum_P) / len(own) ** 2} for row in own]
    agree = {f"agree {of}": _cosine(*(references[f"{of}, {half}"] for half in HALVES)) for of in AIMS}
    return pd.DataFrame(rows).assign(**agree)


def _run(policy: Policy, arm: str, learner: tuple, queries: Sequence, drawn: dict) -> tuple[Untrained, float]:
    """(the arm's run, FLOPs of the profile that its plan is made from)."""
    settings, seed, entry = policy.settings, policy.settings.predictor.seed, policy.settings.arm(arm)
    engine, profile = settings.engine_of(arm), None
    if entry.profile:
        source = Source("", "", engine.temperature, engine.max_new_tokens, seed)
        how = {"samples": entry.profile.samples, "batch_rollouts": settings.evaluation.batch_rollouts}
        profile = measure_profile(*learner, queries, source, **how)
    data = Data(queries, [], profile=profile)
    if not tells(method := build(arm, entry)):
        raise ValueError(f"predictor.arms: the steps of {arm} are made from those before: leave it out")
    run = Untrained(method, engine, settings.evaluation, learner, data, seed, drawn)
    if profile:
        run.ledger.charge_profile(run.flops, profile.prompt_tokens_Q, profile.response_tokens_Q_K)
    return run, run.ledger.flops_profile


def measured(policies: Sequence[Policy], workers: int) -> pd.DataFrame:
    """`batches_of` all policies."""
    return pd.concat(map_in_workers(batches_of, policies, workers), ignore_index=True)


def _dot(one_P: torch.Tensor, other_P: torch.Tensor | None = None) -> float:
    return float(one_P.double() @ (one_P if other_P is None else other_P).double())


def _cosine(one_P: torch.Tensor, other_P: torch.Tensor) -> float:
    return _dot(one_P, other_P) / (_dot(one_P) * _dot(other_P)) ** 0.5


def quantities(batches: pd.DataFrame, price: float, baseline: str) -> pd.DataFrame:
    """A row per policy and arm: policy, arm, bill and QUANTITIES where generation is `price` of the baseline's bill;
    the variances are logarithms."""
    norm = np.sqrt(batches["square"]).replace(0.0, np.inf)
    cosines = {f"cosine, {of}": batches[f"with {of}"] / norm for of in AIMS}
    mean = batches.assign(**cosines).groupby(["policy", "arm"], sort=False)
    count, mean = mean["step"].size(), mean.mean(numeric_only=True)
    spent = mean[["generation", "training"]]
    of_baseline = spent.xs(baseline, level="arm")
    weight = weight_at(price, of_baseline["generation"], of_baseline["training"])
    paid = spent["generation"] * weight.reindex(spent.index, level="policy") + spent["training"]
    bill = paid / paid.xs(baseline, level="arm").reindex(paid.index, level="policy")
    aimed = (count * mean["mean_square"] - mean["square"]) / (count - 1)  # ‖E g‖²
    aimed = aimed.clip(lower=0.01 * mean["square"])
    noise = np.log(mean["square"] / aimed - 1)
    found = {"batches": 1 / bill}
    for of in AIMS:
        cosine, root = mean[f"cosine, {of}"], np.sqrt(mean["square"])
        found |= {f"cosine, {of}": cosine / bill, f"cosine², {of}": cosine**2 / bill}
        found[f"projection, {of}"] = mean[f"with {of}"] / root / bill
    found["aim, reward"] = mean["with reward"] / np.sqrt(aimed)
    found |= {"variance per token": noise + np.log(mean["tokens"]), "variance for the bill": noise + np.log(bill)}
    found |= {"effective": mean["per_distinct"], "silent": mean["silent"], "trained": mean["distinct"]}
    return pd.DataFrame({"bill": bill, **{name: found[name] for name in QUANTITIES}}).reset_index()


class Pair(NamedTuple):
    """A quantity and the trained difference, both less the baseline's: x_A_U and y_A_U by arm and base policy."""

    quantity: str
    price: float
    x: pd.DataFrame
    y: pd.DataFrame

    def among(self, arms: Sequence[str]) -> "Pair":
        kept = self.x.index.intersection(pd.Index(arms))
        return self._replace(x=self.x.loc[kept], y=self.y.loc[kept])


def pairs(batches: pd.DataFrame, runs: pd.DataFrame, baseline: str) -> list[Pair]:
    """Of every quantity and price, on the arms and policies that `batches` and `runs` (policy, arm, seed, price,
    accuracy) have in common."""
    found = []
    for price, own in runs.groupby("price", sort=True):
        y = agreeing.by_unit(own, "accuracy", baseline)
        known = quantities(batches, price, baseline).assign(seed=0)
        for name in QUANTITIES:
            x = agreeing.by_unit(known, name, baseline)
            arms, units = x.index.intersection(y.index), x.columns.intersection(y.columns)
            found.append(Pair(name, price, x.loc[arms, units], y.loc[arms, units]))
    return found


def correlated(asked: Sequence[Pair], statistics: Statistics) -> pd.DataFrame:
    """A row per pair: quantity, price, arms, tied (those that have the baseline's value), what
    `repro.stats.agreement.agreement` tells (NaN below LEAST arms), adjusted (Holm, over all rows), and what `left_out`
    says."""
    rows, unknown = [], dict.fromkeys(("rho", "rho_low", "rho_high", "p", "ceiling"), float("nan"))
    for of in asked:
        tied = int((of.x.mean(axis=1) == 0).sum())
        known = {"quantity": of.quantity, "price": of.price, "arms": len(of.x), "tied": tied}
        told = agreeing.agreement(of.x, of.y, statistics) if len(of.x) >= agreeing.LEAST else unknown
        rows.append({**known, **told, **left_out(of.x, of.y, statistics.confidence)})
    table = pd.DataFrame(rows)
    return table.assign(adjusted=holm(table["p"].fillna(1.0)))


def left_out(x: pd.DataFrame, y: pd.DataFrame, confidence: float) -> dict[str, float]:
    """Errors on each base policy of what the others predict for it, root mean squares over arms and policies: `line`,
    y = b x fitted on the others' arms; `zero`; `mean`, the arm's own mean over the others. gained, gained_low,
    gained_high: squared error of zero less that of the line, over that of zero, with Student's interval over policies.
    A line through the origin says 0 for an arm that chooses as the baseline does."""
    x_A_U, y_A_U = x.to_numpy(), y.to_numpy()
    units = y_A_U.shape[1]
    others = [np.delete(np.arange(units), unit) for unit in range(units)]
    slope_U = np.array([(x_A_U * y_A_U)[:, rest].sum() / ((x_A_U**2)[:, rest].sum() or np.inf) for rest in others])
    mean_A_U = np.stack([y_A_U[:, rest].mean(1) for rest in others], 1) if units > 1 else np.zeros_like(y_A_U)
    error_U = {
        name: ((y_A_U - of) ** 2).mean(0) for name, of in {"line": slope_U * x_A_U, "zero": 0, "mean": mean_A_U}.items()
    }
    gain_U = (error_U["zero"] - error_U["line"]) / error_U["zero"].mean()
    ends = dict(zip(("gained", "gained_low", "gained_high"), map(float, t_intervals(gain_U, confidence)), strict=True))
    return {**{name: float(np.sqrt(of.mean())) for name, of in error_U.items()}, **ends}


def predicts(own: pd.DataFrame, alike: pd.DataFrame, statistics: Statistics) -> Mapping[str, bool]:
    """{quantity: whether it predicts}, by the rule that was written down before the first number (docs/LOG.md). `own`:
    `correlated` of runs at each arm's own rate, `alike`: of those at one rate."""
    sign = pd.Series(QUANTITIES)
    own = own.assign(right=own["rho"] * own["quantity"].map(sign) > 0, sure=own["adjusted"] < 1 - statistics.confidence)
    again = (alike["rho"] * alike["quantity"].map(sign) > 0).groupby(alike["quantity"]).all()
    each = (own["right"] & own["sure"] & (own["gained_low"] > 0)).groupby(own["quantity"]).all()
    return {name: bool(each.get(name, False) and again.get(name, False)) for name in QUANTITIES}
