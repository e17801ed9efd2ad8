"""One arm on simulated batches: plan, filter, advantage and samplers as in training, the ledger charged at the paper's
scale.

A simulated batch has fewer groups than a real one (`Assumptions.groups`). The cost of a group does not depend on that,
and what samplers select from a batch hardly does. Success rates are those that the baseline met in training, for every
arm: differences in cost per batch are predicted, differences in learning are not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice

import numpy as np

from repro.arms import Method, build
from repro.experiments.planner.measured import Measured
from repro.experiments.planner.models import ARCHITECTURES
from repro.methods.guard import MethodError, call, name_of
from repro.methods.lengths import Lengths
from repro.methods.plans import PlannedGroup, PlanStream, Queries
from repro.methods.rollouts import Rollouts
from repro.methods.unscored import Unscored
from repro.protocol.ledger import Ledger
from repro.settings import Arm, Settings
from repro.settings.planner import Assumptions
from repro.verl.papers import PaperScale, arm_at

AT_ONCE = 256  # groups of a plan that one guarded call draws: a call takes longer than a group
PURPOSES = ("pool", "profile", "plan", "answers", "sample", "shuffle")
REFILL = 2  # prompts that verl generates for each that its filter drops; what is too much is discarded


@dataclass
class Drawn:
    """The cost of the simulated batches, and the response_tokens_N generated for each of them, kept or not. `skipped`:
    batches without an update."""

    ledger: Ledger
    batches: int
    generated: list[np.ndarray] = field(default_factory=list)
    skipped: int = 0


@dataclass(frozen=True)
class _Pool:
    """Queries, given by their quantile of difficulty (0 the hardest), and the responses that they get."""

    quantile_P: np.ndarray
    measured: Measured
    assumptions: Assumptions
    longest: int

    def profile(self, samples: int, progress: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """(successes_P, response_tokens_P_K) of K samples per query."""
        p_P = self.measured.success(self.quantile_P, progress)
        reward_P_K = rng.random((len(p_P), samples)) < p_P[:, None]
        tokens_N, _ = self.answer(np.repeat(p_P, samples), reward_P_K.reshape(-1), rng)
        return reward_P_K.sum(1), tokens_N.reshape(-1, samples)

    def answer(self, p_N: np.ndarray, reward_N: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """(response_tokens_N, entropy_N): measured lengths, stretched to the scale's mean, cut at its limit."""
        relative_N, entropy_N = self.measured.draw(p_N, reward_N, rng)
        mean = self.assumptions.mean_response_share * self.longest
        return np.clip(np.rint(relative_N * mean), 2, self.longest).astype(int), entropy_N

    def lengths(self, response_tokens_N: np.ndarray) -> Lengths:
        """As rewards and advantages see them: what is as long as can be was cut."""
        return Lengths(response_tokens_N, response_tokens_N >= self.longest, self.longest)


def draw(scale: PaperScale, settings: Settings, name: str, measured: Measured, assumptions: Assumptions) -> Drawn:
    """Simulates batches of arm `name` at a paper's scale, spread evenly over its run."""
    arm = arm_at(scale, settings.arm(name))
    method = build(name, arm)
    quantile_P = _rng(assumptions, 0, "pool").random(assumptions.pool)
    pool = _Pool(quantile_P, measured, assumptions, scale.max_response_tokens.value)
    drawn = Drawn(Ledger(), assumptions.batches)
    again = {round(part * drawn.batches / (method.profile_again + 1)) for part in range(1, method.profile_again + 1)}
    stream = None
    for batch in range(drawn.batches):
        if batch == 0 or batch in again:
            stream = _plan(drawn, arm, method, scale, pool, batch)
        _step(drawn, method, settings, scale, pool, stream, batch)
    return drawn


def _rng(assumptions: Assumptions, batch: int, purpose: str) -> np.random.Generator:
    """One random stream for each purpose in each batch, so that arms with the same plan get the same rollouts."""
    return np.random.default_rng([assumptions.seed, batch, PURPOSES.index(purpose)])


def _plan(drawn: Drawn, arm: Arm, method: Method, scale: PaperScale, pool: _Pool, batch: int) -> PlanStream:
    """The plan from this batch on. If it needs a profile, one is simulated and its share of the cost is charged.

    A profile samples all training queries once, for the whole run, of which only some batches are simulated. These bear
    the share of its cost that they have of the run's rollouts.
    """
    prompt_P = np.full(len(pool.quantile_P), pool.assumptions.prompt_tokens)
    known, rng = Queries(prompt_P), _rng(pool.assumptions, batch, "profile")
    if arm.profile is not None:
        successes_P, tokens_P_K = pool.profile(arm.profile.samples, batch / drawn.batches, rng)
        known = Queries(prompt_P, successes_P, np.full(len(prompt_P), arm.profile.samples))
        bearing = scale.train_queries.value * drawn.batches / scale.steps * _share(pool.assumptions, scale)
        rows = rng.integers(len(prompt_P), size=max(1, round(bearing)))
        flops = ARCHITECTURES[scale.model.value].counter
        drawn.ledger.charge_profile(flops, prompt_P[rows], tokens_P_K[rows])
    return PlanStream(_groups(method, known, _budget(pool.assumptions, scale), _rng(pool.assumptions, batch, "plan")))


def _groups(method: Method, known: Queries, budget: int, rng: np.random.Generator) -> Iterator[PlannedGroup]:
    """The plan's groups, as `Method.made_plan` gives them, which looks at each."""
    groups = iter(call("plan", method.plan, known, budget, rng, rng=rng))
    for number in count():
        part = call("plan", lambda: list(islice(groups, AT_ONCE)), rng=number, name=name_of(method.plan))
        if not part:
            raise MethodError(f"plan {name_of(method.plan)} ended; it should go on without end, epoch after epoch")
        yield from part


def _share(assumptions: Assumptions, scale: PaperScale) -> float:
    """Rollouts of a simulated batch over those of a real one."""
    return _budget(assumptions, scale) / scale.rollouts_per_step


def _budget(assumptions: Assumptions, scale: PaperScale) -> int:
    """Rollouts of a simulated batch: whole groups, at most as many as in the real batch."""
    return scale.group_size.value * min(assumptions.groups, scale.train_batch.value)


def _step(
    drawn: Drawn,
    method: Method,
    settings: Settings,
    scale: PaperScale,
    pool: _Pool,
    stream: PlanStream,
    batch: int,
) -> None:
    """One batch: rollouts until it is full, the choice, and the passes that score and train on what was chosen."""
    rounds = settings.engine.refill_rounds if method.filter else 1
    whole = _collect(drawn, method, rounds, scale, pool, stream, batch)
    if len(whole["rewards_N"]) == 0:
        drawn.skipped += 1
        return
    rollouts, read = _rollouts(whole, method, pool, batch), []
    offered = Unscored.of(rollouts, partial(_signals, rollouts, read))
    chosen = method.select(batch, offered, batch / drawn.batches, _rng(pool.assumptions, batch, "sample"))
    parts = []
    if chosen is None:
        drawn.skipped += 1
    else:
        steps = chosen.minibatches or round(scale.train_batch.value / scale.minibatch.value)
        order = _rng(pool.assumptions, batch, "shuffle").permutation(len(chosen))
        parts = [part for part in np.array_split(order, steps) if len(part)]
    _charge(drawn.ledger, rollouts, chosen, parts, scale, every_row=bool(read))


def _collect(
    drawn: Drawn, method: Method, rounds: int, scale: PaperScale, pool: _Pool, stream: PlanStream, batch: int
) -> dict[str, np.ndarray]:
    """The batch's groups, those that pass the filter, charged with those that do not and with what is too much."""
    flops, budget = ARCHITECTURES[scale.model.value].counter, _budget(pool.assumptions, scale)
    parts, generated, missing, kept = [], [], budget, 0
    progress, rng = batch / drawn.batches, _rng(pool.assumptions, batch, "answers")
    for _ in range(rounds):
        planned = stream.fill_step(missing)
        part = _answers(planned, method, pool, batch, progress, rng)
        tokens_N = part["response_tokens_N"]
        sizes_Q = [group.size for group in planned]
        drawn.ledger.charge_generation(flops, np.full(len(planned), pool.assumptions.prompt_tokens), sizes_Q, tokens_N)
        generated.append(tokens_N)
        if method.filter:
            keep_Q = method.kept_groups(batch, part["rewards_N"], part["group_N"])
            part = {key: values[keep_Q[part["group_N"]]] for key, values in part.items()}
        parts.append(part | {"group_N": part["group_N"] + 100_000 * len(parts)})
        kept += len(part["rewards_N"])
        if not stream.fits(budget - kept):
            break
        # At most two batches a round: where nearly every group drops, verl's rule would double with each.
        missing = max(budget - kept, REFILL * min(budget, len(tokens_N) - len(part["rewards_N"])))
    drawn.generated.append(np.concatenate(generated))
    whole = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return _first_groups(whole, budget)


def _charge(
    ledger: Ledger,
    rollouts: Rollouts,
    chosen: Rollouts | None,
    parts: list[np.ndarray],
    scale: PaperScale,
    *,
    every_row: bool,
) -> None:
    """verl's passes: for π_old, of what is trained on or, if a sampler read it, of `every_row`; for the reference; and
    the updates, in which copies of a rollout are one row, and rows without a gradient are not read.

    parts: places in `chosen`, one array per mini-batch; none where nothing was chosen."""
    flops, kl = ARCHITECTURES[scale.model.value].counter, scale.kl.value > 0
    read = [part if kl else part[chosen.advantages_N[part] != 0] for part in parts]
    rows = [chosen.row_N[part] for part in read]
    trained_U = rollouts.costs_N[np.unique(np.concatenate([*rows, np.zeros(0, int)]))]
    ledger.charge_scoring(flops, rollouts.costs_N if every_row else trained_U)
    if kl:
        ledger.charge_scoring(flops, trained_U)
    for part, row_M in zip(parts, rows, strict=True):
        ledger.charge_update(flops, rollouts.costs_N[np.unique(row_M)], paper_tokens=int(chosen.costs_N[part].sum()))


def _first_groups(whole: dict[str, np.ndarray], budget: int) -> dict[str, np.ndarray]:
    """Whole groups, in order, as many as fit; verl discards the others."""
    ends_N = np.searchsorted(whole["group_N"], whole["group_N"], side="right")  # of each rollout's group
    return {key: values[ends_N <= budget] for key, values in whole.items()}


def _signals(rollouts: Rollouts, read: list[str]) -> dict[str, np.ndarray]:
    """What a sampler reads of a scoring pass, which is then of all rollouts: `read` notes that."""
    read.append("all")
    return {"entropy_N_T": rollouts.entropy_N_T, "logprob_N_T": rollouts.logprob_N_T}


def _answers(
    planned: list[PlannedGroup], method: Method, pool: _Pool, batch: int, progress: float, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    sizes_Q = [group.size for group in planned]
    p_Q = pool.measured.success(pool.quantile_P[[group.query for group in planned]], progress)
    p_N = np.repeat(p_Q, sizes_Q)
    verdict_N = rng.random(len(p_N)) < p_N
    tokens_N, entropy_N = pool.answer(p_N, verdict_N, rng)
    return {
        "group_N": np.repeat(np.arange(len(planned)), sizes_Q),
        "rewards_N": method.rewards(batch, verdict_N.astype(float), rng, pool.lengths(tokens_N)).astype(float),
        "response_tokens_N": tokens_N,
        "entropy_N": entropy_N,
    }


def _rollouts(whole: dict[str, np.ndarray], method: Method, pool: _Pool, batch: int) -> Rollouts:
    """The batch as samplers see it, except that one column stands for all tokens of a response: masking tokens does not
    change what a pass over the rollout costs."""
    entropy_N_1 = np.maximum(whole["entropy_N"], 1e-6)[:, None]
    lengths = pool.lengths(whole["response_tokens_N"])
    return Rollouts.from_batch(
        group_N=whole["group_N"],
        rewards_N=whole["rewards_N"],
        advantages_N=method.advantages(batch, whole["rewards_N"], whole["group_N"], lengths),
        prompt_tokens_N=np.full(len(whole["group_N"]), pool.assumptions.prompt_tokens),
        response_tokens_N=whole["response_tokens_N"],
        response_mask_N_T=np.ones_like(entropy_N_1, bool),
        entropy_N_T=entropy_N_1,
        logprob_N_T=-entropy_N_1,
    )
