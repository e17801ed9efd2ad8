"""One training run: one arm, one seed, from the base policy to the last evaluation.

An arm with a profile profiles every query before the first step, and again as often as configured, and makes its plan
from the profile. Each step: the plan's groups are generated, verified, filtered and normalised; the arm's samplers
select; the objective updates. Every random draw comes from a stream named by (seed, step, purpose), so a resumed run
draws what the uninterrupted one would have, and two arms with the same seed start from the same groups.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from repro.engine.batch import Groups, lengths_of
from repro.engine.evaluate import both, examine, summary
from repro.engine.generate import generate
from repro.engine.log_probabilities import Batch, log_probabilities
from repro.engine.measure import measure_profile
from repro.engine.sample import decode, score
from repro.engine.update import Diverged, UpdateSettings, run_updates, silent_without_advantage
from repro.methods.method import Method
from repro.methods.plans import PlannedGroup, Queries
from repro.methods.rollouts import Rollouts
from repro.policy.flops import FlopCounter
from repro.protocol.collect import join
from repro.protocol.ledger import Ledger
from repro.protocol.log import SELECTED, UPDATED, Log, describe_selection, rollout_rows, selection_rows
from repro.protocol.profile import Profile, Source
from repro.protocol.running_arm import RunningArm
from repro.protocol.streams import stream_seed
from repro.settings import Engine, Evaluation
from repro.tasks.queries import Query
from repro.tasks.tokenizer import encode

if TYPE_CHECKING:
    from repro.engine.checkpoint import Checkpoints

Progress = Callable[[int, float | None], None]


@dataclass(frozen=True)
class Data:
    """Training and held-out queries. `start`: the base policy's evaluation, if already known (a row of
    `repro.engine.evaluate`), else None. `profile`: that of the training queries, for an arm that uses one; it took
    `profile_seconds`. `harder`: the harder split."""

    train: list[Query]
    evaluation: list[Query]
    start: dict[str, float] | None = None
    profile: Profile | None = None
    profile_seconds: float = 0.0
    harder: Sequence[Query] = ()


class Trainer(RunningArm):
    """The state of one run. `train()` runs it; the other methods are its phases, in order."""

    def __init__(
        self,
        method: Method,
        engine: Engine,
        evaluation: Evaluation,
        model: Any,
        reference: Any,
        tokenizer: Any,
        data: Data,
        seed: int,
        snapshots: tuple[int, ...] = (),
    ):
        self.engine, self.evaluation = engine, evaluation
        self.model, self.reference, self.tokenizer, self.data = model, reference, tokenizer, data
        self.snapshots, self.diverged = snapshots, False
        self.optimiser = torch.optim.AdamW(
            model.parameters(), lr=engine.learning_rate, weight_decay=engine.weight_decay, fused=True
        )
        self.update_settings = UpdateSettings(
            method.aggregation,
            engine.temperature,
            engine.kl,
            engine.gradient_clip,
            engine.slice_tokens,
            engine.max_new_tokens,
            every_row=not silent_without_advantage(method),
        )
        self.flops, self.ledger, self.log = FlopCounter.of(model), Ledger(), Log()
        self.phases: dict[str, float] = defaultdict(float)
        self.prompts = encode(tokenizer, [query.prompt for query in data.train])
        self.clock = process_time if engine.device == "cpu" else perf_counter  # CPU time excludes other processes
        prompt_tokens_Q = np.array([len(prompt) for prompt in self.prompts])
        known = data.profile.known() if data.profile else Queries(prompt_tokens_Q)
        super().__init__(method, seed, engine.rollouts_per_step, known)
        self.profile_steps = self.profiled_before(engine.steps)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the seconds spent inside the context to a phase of the current step."""
        started = self.clock()
        try:
            yield
        finally:
            self.phases[phase] += self.clock() - started

    def train(self, checkpoints: "Checkpoints", progress: Progress) -> Log:
        """Run (or resume) to the end. `progress(step, accuracy)` is called after every step."""
        start = checkpoints.restore(self)
        if start == 0 and self.data.profile:
            self._charge_profile(self.data.profile)
            self.phases["profile"] += self.data.profile_seconds
        for step in count(start):
            last = (self.diverged and self.engine.stop_gflops is not None) or self.done(step) >= 1
            accuracy = self.evaluate(step, last) if last or self._due(step) else None
            progress(step, accuracy)
            if last:
                break
            if not self.diverged:
                try:
                    if self._profile_due(step):
                        self.profile(step)
                    self.step(step)
                except Diverged:  # the weights are finite no more: nothing can be sampled
                    self.diverged = True
            if step + 1 in self.snapshots:
                checkpoints.keep_snapshot(self.model, step + 1)
            if (step + 1) % self.engine.checkpoint_every == 0:
                checkpoints.save(self, step + 1)
        return self.log

    def done(self, step: int) -> float:
        """The share of the run that lies before `step`: of its steps, or of what it pays until it stops."""
        if self.engine.stop_gflops is None or step == 0:
            return step / self.engine.steps
        before = Ledger.from_row(self.log.steps[step - 1])
        return 1e-9 * before.paid(self.evaluation.weight) / self.engine.stop_gflops

    def _profile_due(self, step: int) -> bool:
        """Whether another of the arm's `profile_again` + 1 equal parts of the run begins with this step."""
        if self.engine.stop_gflops is None:
            return step in self.profile_steps
        parts = self.method.profile_again + 1
        return step > 0 and int(parts * self.done(step)) > int(parts * self.done(step - 1))

    def profile(self, step: int) -> None:
        """Profile the training queries again with the current policy, and make a new plan."""
        engine = self.engine
        source = Source(
            "", "", engine.temperature, engine.max_new_tokens, stream_seed(self.seed, step, "profile")
        )  # it is not stored, so it needs no hashes
        with self.timed("profile"):
            profile = measure_profile(
                self.model,
                self.tokenizer,
                self.data.train,
                source,
                samples=self.data.profile.samples,
                batch_rollouts=self.evaluation.batch_rollouts,
            )
        self._charge_profile(profile)
        self.make_plan(step, profile.known())

    def _charge_profile(self, profile: Profile) -> None:
        self.ledger.charge_profile(self.flops, profile.prompt_tokens_Q, profile.response_tokens_Q_K)

    def _due(self, step: int) -> bool:
        """Whether to evaluate before training step `step`: before the first, and whenever what was paid has crossed a
        multiple of a `budgets`-th of the bill since the last evaluation, also beyond it. The last evaluation is in the
        log, so a resumed run evaluates where the uninterrupted one would have."""
        if step == 0:
            return True
        if self.evaluation.budget_gflops is None:
            return step % self.engine.log_every == 0
        then = Ledger.from_row(self.log.evaluations[-1])
        paid, before = (1e-9 * ledger.paid(self.evaluation.weight) for ledger in (self.ledger, then))
        spacing = self.evaluation.bill_gflops / self.evaluation.budgets
        return paid // spacing > before // spacing

    def evaluate(self, step: int, last: bool) -> float:
        """Accuracy on the held-out queries, logged with the cost so far; also per question at the end."""
        with self.timed("evaluate"):
            means = self.data.start if step == 0 and not last and self.data.start else self._examine(step, last)
        spent = self.ledger.spent(self.evaluation.bill_gflops, self.evaluation.weight)
        self.log.evaluations.append({"seed": self.seed, "step": step, **means, "diverged": self.diverged, **spent})
        self._log_seconds(step)
        return means["accuracy"]

    def _examine(self, step: int, last: bool) -> dict[str, float]:
        held_out = self._measured(self.data.evaluation, step, last, self.log.questions)
        harder = self._measured(self.data.harder, step, last, self.log.harder) if self.data.harder else None
        return both(held_out, harder)

    def _measured(
        self, queries: Sequence[Query], step: int, last: bool, rows: list[dict[str, Any]]
    ) -> dict[str, float]:
        settings = self.evaluation
        samples = settings.final_samples if last else settings.samples
        try:
            outcome = examine(
                self.model,
                self.tokenizer,
                queries,
                self.engine,
                settings,
                samples=samples,
                seed=self._evaluation_seed(step, last),
                stratified=settings.common and not last,
            )
        except Diverged:  # a policy from which nothing can be sampled solves nothing
            self.diverged = True
            names = ("successes", "tokens", "truncated", *(["greedy"] if settings.greedy else []))
            outcome = dict.fromkeys(names, np.zeros(len(queries), int))
        if last:
            for index, query in enumerate(queries):
                counts = {name: int(values[index]) for name, values in outcome.items()}
                row = {"seed": self.seed, "query": index, "family": query.family, "prompt": query.prompt}
                rows.append({**row, "samples": samples, **counts})
        return summary(outcome, samples)

    def _evaluation_seed(self, step: int, last: bool) -> int:
        """Common draws: by the number of the evaluation, whatever the arm and seed; those of the last, by the seed."""
        if not self.evaluation.common:
            return stream_seed(self.seed, step, "evaluate")
        return stream_seed(self.seed, 0, "final") if last else stream_seed(0, len(self.log.evaluations), "evaluate")

    def step(self, step: int) -> None:
        """One batch of rollouts and the updates on it."""
        groups, metrics = self.collect(step)
        groups, again = self.recalled(step, groups)
        metrics |= again
        metrics |= dict.fromkeys((*SELECTED, *UPDATED), float("nan"))
        rollouts = selected = None
        if groups is not None:
            rollouts = self._rollouts(groups, step)
            batch = Batch([self.prompts[query] for query in groups.query_N], groups.responses)
            with self.timed("probe"):
                fresh = len(batch.prompts_N) - again.get("replayed_rollouts", 0)
                metrics["kl"] = self._kl_to_reference(step, batch, fresh)
            with self.timed("select"):
                selected = self.select(step, rollouts, self.done(step))
        if selected is not None:
            metrics |= describe_selection(selected)
            with self.timed("update"):
                metrics |= self._update(step, batch, selected)
        self.log.steps.append(
            {"seed": self.seed, "step": step, "skipped": selected is None, **metrics, **self.ledger.row()}
        )
        if groups is not None and step % self.engine.log_every == 0:
            at = {"seed": self.seed, "step": step}
            rows = selection_rows(at, groups.query_N, self.data.train, rollouts, selected)
            self.log.selection += rows
            self.log.rollouts += rollout_rows(rows, groups.texts[: self.engine.kept_rollouts], self.data.train)
        self._log_seconds(step)

    def collect(self, step: int) -> tuple[Groups | None, dict[str, float]]:
        """(the batch, None if no group passed; metrics over everything generated for it)."""
        generator = torch.Generator(device=self.model.device).manual_seed(stream_seed(self.seed, step, "generate"))
        rng = self.rng(step, "reward")

        def generate(planned: list[PlannedGroup]) -> Groups:
            return self._generate(planned, generator, rng, step)

        batch, seen = self.collected(step, self.engine.refill_rounds, generate)
        return batch, {**join(seen).describe(), "refill_rounds": len(seen) - 1, "kl": float("nan")}

    def _generate(
        self, planned: list[PlannedGroup], generator: torch.Generator, rng: np.random.Generator, step: int = 0
    ) -> Groups:
        sizes_Q = [group.size for group in planned]
        prompts_Q = [self.prompts[group.query] for group in planned]
        with self.timed("generate"):
            responses = generate(
                self.model,
                prompts_Q,
                sizes_Q,
                max_new_tokens=self.engine.max_new_tokens,
                eos=self.tokenizer.eos_token_id,
                pad=self.tokenizer.pad_token_id,
                temperature=self.engine.temperature,
                generator=generator,
            )
        prompt_tokens_Q = np.array([len(prompt) for prompt in prompts_Q])
        self.ledger.charge_generation(self.flops, prompt_tokens_Q, sizes_Q, responses.mask_N_T.sum(1).cpu().numpy())
        with self.timed("verify"):
            texts, valid_N = decode(self.tokenizer, responses)
            queries_N = [self.data.train[group.query] for group in planned for _ in range(group.size)]
            verdicts_N = score(texts, valid_N, queries_N)
        lengths = lengths_of(responses, self.engine.max_new_tokens)
        return Groups(planned, responses, texts, verdicts_N, self.method.rewards(step, verdicts_N, rng, lengths))

    def _rollouts(self, groups: Groups, step: int = 0) -> Rollouts:
        responses = groups.responses
        lengths = lengths_of(responses, self.engine.max_new_tokens)
        return Rollouts.from_batch(
            group_N=groups.group_N,
            rewards_N=groups.rewards_N,
            advantages_N=self.method.advantages(step, groups.rewards_N, groups.group_N, lengths),
            prompt_tokens_N=responses.prompt_tokens_N.cpu().numpy(),
            response_tokens_N=responses.mask_N_T.sum(1).cpu().numpy(),
            response_mask_N_T=responses.mask_N_T.cpu().numpy(),
            entropy_N_T=responses.entropy_N_T.cpu().numpy(),
            logprob_N_T=responses.logprob_N_T.cpu().numpy(),
        )

    @torch.inference_mode()
    def _kl_to_reference(self, step: int, batch: Batch, n: int) -> float:
        """KL(π‖base policy) in nats per token, by the k3 estimator on `kl_probe` random rollouts of the first n, which
        the policy itself has drawn; NaN if there are none. A measurement, so it is not charged."""
        if self.engine.kl_probe == 0 or n == 0:
            return float("nan")
        rows = self.rng(step, "probe").choice(n, size=min(n, self.engine.kl_probe), replace=False)
        reference_M_T = log_probabilities(
            self.reference, batch, rows, self.tokenizer.pad_token_id, self.engine.temperature
        )
        width = reference_M_T.shape[1]
        mask_M_T = batch.responses.mask_N_T[rows][:, :width]
        gap = (reference_M_T - batch.responses.logprob_N_T[rows][:, :width])[mask_M_T]
        return float((gap.exp() - 1 - gap).mean())

    def _update(self, step: int, batch: Batch, selected: Rollouts) -> dict[str, float]:
        """All mini-batches of one step."""
        parts = self.minibatches(step, selected, self.engine.rollouts_per_step // self.engine.minibatch)
        try:
            return run_updates(
                self.model,
                self.optimiser,
                self.method.objective,
                batch,
                parts,
                self.tokenizer.pad_token_id,
                self.update_settings,
                self.ledger,
                self.flops,
                self.reference,
            )
        except Diverged:
            self.diverged = True
            return {}

    def _log_seconds(self, step: int) -> None:
        for phase, seconds in self.phases.items():
            self.log.seconds.append({"seed": self.seed, "step": step, "phase": phase, "seconds": seconds})
        self.phases.clear()
