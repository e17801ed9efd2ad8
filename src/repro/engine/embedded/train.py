"""One training run: one arm, one seed, from the base policy to the last evaluation.

Each step: the plan's groups are generated, verified, normalised; the arm's samplers choose; the objective updates.
Every random draw comes from a stream named by (seed, step, purpose), so a run resumed from a checkpoint draws what the
uninterrupted one would have, and two arms with one seed start from the same groups.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import torch

from repro.advantages import groups_without_signal
from repro.arms import Method
from repro.engine.embedded.checkpoint import Checkpoints
from repro.engine.embedded.evaluate import decode, evaluate, score
from repro.engine.embedded.generate import Responses, generate
from repro.engine.embedded.update import Batch, UpdateSettings, accumulate_gradients, response_log_probabilities
from repro.engine.ledger import Ledger
from repro.plans import PlannedGroup, PlanStream, Queries
from repro.policy.flops import FlopCounter
from repro.rollouts import NoSignal, Rollouts
from repro.samplers import apply_chain, effective_sample_size
from repro.settings import Engine, Evaluation
from repro.tasks.queries import Query

# What an update measures; NaN in a step whose batch had no signal and that was skipped.
UPDATE_METRICS = (
    "loss",
    "gradient_norm",
    "gradient_clipped",
    "clipped",
    "padding",
    "selected_rollouts",
    "distinct_rollouts",
    "selected_tokens",
    "loss_tokens",
    "effective_sample_size",
    "largest_weight",
)
PURPOSES = ("plan", "generate", "sample", "shuffle", "evaluate", "probe")


def stream_seed(seed: int, step: int, purpose: str) -> int:
    """A 63-bit seed for one purpose at one step of one run."""
    words = np.random.SeedSequence([seed, step, PURPOSES.index(purpose)]).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))


@dataclass
class Log:
    """What a run leaves: one row per training step, per evaluation and per question, some rollouts to read, and,
    apart from these because it is never the same twice, seconds by phase."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)
    rollouts: list[dict[str, Any]] = field(default_factory=list)
    seconds: list[dict[str, Any]] = field(default_factory=list)


class Trainer:
    """The state of one run. `train()` is the whole of it; the methods are its phases in order."""

    def __init__(
        self,
        method: Method,
        engine: Engine,
        evaluation: Evaluation,
        model: Any,
        reference: Any,
        tokenizer: Any,
        train_queries: list[Query],
        evaluation_queries: list[Query],
        seed: int,
    ):
        self.method, self.engine, self.evaluation, self.seed = method, engine, evaluation, seed
        self.model, self.reference, self.tokenizer = model, reference, tokenizer
        self.queries, self.evaluation_queries = train_queries, evaluation_queries
        self.optimiser = torch.optim.AdamW(
            model.parameters(), lr=engine.learning_rate, weight_decay=engine.weight_decay, fused=True
        )
        self.update_settings = UpdateSettings(
            engine.aggregation, engine.temperature, engine.kl, engine.gradient_clip, engine.slice_tokens
        )
        self.flops, self.ledger, self.log = FlopCounter.of(model), Ledger(), Log()
        self.phases: dict[str, float] = defaultdict(float)
        self.prompts = tokenizer([query.prompt for query in train_queries])["input_ids"]
        rng = np.random.default_rng(stream_seed(seed, 0, "plan"))
        known = Queries(np.array([len(prompt) for prompt in self.prompts]))
        self.plan = PlanStream(method.plan(known, engine.rollouts_per_step, rng))

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the seconds spent inside to a phase of the current step."""
        started = perf_counter()
        try:
            yield
        finally:
            self.phases[phase] += perf_counter() - started

    def generator(self, step: int, purpose: str) -> torch.Generator:
        return torch.Generator(device=self.model.device).manual_seed(stream_seed(self.seed, step, purpose))

    def rng(self, step: int, purpose: str) -> np.random.Generator:
        return np.random.default_rng(stream_seed(self.seed, step, purpose))

    def train(self, checkpoints: Checkpoints, progress: Callable[[int, float | None], None]) -> Log:
        """Run (or resume) to the end. `progress(step, accuracy)` is called after every step."""
        start = checkpoints.restore(self)
        for step in range(start, self.engine.steps + 1):
            last = step == self.engine.steps
            accuracy = self.evaluate(step, last) if last or step % self.evaluation.every == 0 else None
            progress(step, accuracy)
            if last:
                break
            self.step(step)
            if (step + 1) % self.engine.checkpoint_every == 0:
                checkpoints.save(self, step + 1)
        return self.log

    def evaluate(self, step: int, last: bool) -> float:
        """Accuracy over the held-out queries, logged with what was spent so far; per question at the end."""
        settings = self.evaluation
        samples = settings.final_samples if last else settings.samples
        with self.timed("evaluate"):
            outcome = evaluate(
                self.model,
                self.tokenizer,
                self.evaluation_queries,
                samples=samples,
                batch_rollouts=settings.batch_rollouts,
                max_new_tokens=self.engine.max_new_tokens,
                temperature=settings.temperature,
                seed=stream_seed(self.seed, step, "evaluate"),
            )
        n = samples * len(self.evaluation_queries)
        accuracy = float(outcome["successes"].sum() / n)
        self.log.evaluations.append(
            {
                "seed": self.seed,
                "step": step,
                "accuracy": accuracy,
                "samples": samples,
                "response_tokens": float(outcome["tokens"].sum() / n),
                "truncated": float(outcome["truncated"].sum() / n),
                **self.ledger.row(),
            }
        )
        if last:
            for index, query in enumerate(self.evaluation_queries):
                counts = {name: int(values[index]) for name, values in outcome.items()}
                row = {"seed": self.seed, "query": index, "family": query.family, "prompt": query.prompt}
                self.log.questions.append({**row, "samples": samples, **counts})
        self._log_seconds(step)
        return accuracy

    def step(self, step: int) -> None:
        """One batch of rollouts and the updates on it."""
        groups = self.plan.fill_step(self.engine.rollouts_per_step)
        with self.timed("generate"):
            responses = self._generate(step, groups)
        with self.timed("verify"):
            queries_N = [self.queries[group.query] for group in groups for _ in range(group.size)]
            texts, valid_N = decode(self.tokenizer, responses)
            rewards_N = score(texts, valid_N, queries_N)
            rollouts = self._rollouts(groups, responses, rewards_N)
        batch = Batch([self.prompts[group.query] for group in groups for _ in range(group.size)], responses)
        metrics = self._describe(rollouts, responses) | dict.fromkeys(UPDATE_METRICS, float("nan"))
        with self.timed("probe"):
            metrics["kl"] = self._kl_to_reference(step, batch)
        try:
            with self.timed("select"):
                selected = apply_chain(
                    self.method.samplers, rollouts, step / self.engine.steps, self.rng(step, "sample")
                )
        except NoSignal:
            selected = None
        if selected is not None:
            with self.timed("update"):
                metrics |= self._update(step, batch, selected)
        self.log.steps.append(
            {"seed": self.seed, "step": step, "skipped": selected is None, **metrics, **self.ledger.row()}
        )
        if step % self.evaluation.every == 0:
            self._keep_rollouts(step, texts, queries_N, rollouts, selected)
        self._log_seconds(step)

    def _generate(self, step: int, groups: list[PlannedGroup]) -> Responses:
        sizes_Q = [group.size for group in groups]
        prompts_Q = [self.prompts[group.query] for group in groups]
        responses = generate(
            self.model,
            prompts_Q,
            sizes_Q,
            max_new_tokens=self.engine.max_new_tokens,
            eos=self.tokenizer.eos_token_id,
            pad=self.tokenizer.pad_token_id,
            temperature=self.engine.temperature,
            generator=self.generator(step, "generate"),
        )
        prompt_tokens_Q = np.array([len(prompt) for prompt in prompts_Q])
        self.ledger.charge_generation(self.flops, prompt_tokens_Q, sizes_Q, responses.mask_N_T.sum(1).cpu().numpy())
        return responses

    def _rollouts(self, groups: list[PlannedGroup], responses: Responses, rewards_N: np.ndarray) -> Rollouts:
        group_N = np.repeat(np.arange(len(groups)), [group.size for group in groups])
        return Rollouts.from_batch(
            group_N=group_N,
            rewards_N=rewards_N,
            advantages_N=self.method.advantage(rewards_N, group_N),
            prompt_tokens_N=responses.prompt_tokens_N.cpu().numpy(),
            response_tokens_N=responses.mask_N_T.sum(1).cpu().numpy(),
            response_mask_N_T=responses.mask_N_T.cpu().numpy(),
            entropy_N_T=responses.entropy_N_T.cpu().numpy(),
        )

    def _describe(self, rollouts: Rollouts, responses: Responses) -> dict[str, float]:
        mask_N_T = rollouts.response_mask_N_T
        return {
            "reward": float(rollouts.rewards_N.mean()),
            "accuracy": float((rollouts.rewards_N == 1.0).mean()),
            "groups_without_signal": groups_without_signal(rollouts.rewards_N, rollouts.group_N),
            "entropy": float(rollouts.entropy_N_T[mask_N_T].mean()),
            "response_tokens": float(rollouts.response_tokens_N.mean()),
            "truncated": float(1.0 - responses.finished_N.float().mean()),
        }

    @torch.inference_mode()
    def _kl_to_reference(self, step: int, batch: Batch) -> float:
        """KL(π‖base policy) in nats per token, by the k3 estimator on `kl_probe` random rollouts; NaN if that is 0.
        A measurement, so not charged."""
        n = len(batch.prompts_N)
        if self.engine.kl_probe == 0:
            return float("nan")
        rows = self.rng(step, "probe").choice(n, size=min(n, self.engine.kl_probe), replace=False)
        reference_M_T, _ = response_log_probabilities(
            self.reference, batch, rows, self.tokenizer.pad_token_id, self.engine.temperature
        )
        width = reference_M_T.shape[1]
        mask_M_T = batch.responses.mask_N_T[rows][:, :width]
        gap = (reference_M_T - batch.responses.logprob_N_T[rows][:, :width])[mask_M_T]
        return float((gap.exp() - 1 - gap).mean())

    def _update(self, step: int, batch: Batch, selected: Rollouts) -> dict[str, float]:
        """All mini-batches of one step; each row of `selected` trains once, in random order."""
        pad = self.tokenizer.pad_token_id
        count = selected.minibatches or self.engine.rollouts_per_step // self.engine.minibatch
        order = self.rng(step, "shuffle").permutation(len(selected))
        sums: dict[str, float] = defaultdict(float)
        used = [part for part in np.array_split(order, count) if len(part)]
        for rows in used:
            part = selected.take(rows)
            self.optimiser.zero_grad(set_to_none=True)
            for name, value in accumulate_gradients(
                self.model, self.method.objective, batch, part, pad, self.update_settings, self.reference
            ).items():
                sums[name] += value
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.engine.gradient_clip)
            sums["gradient_norm"] += float(norm)
            sums["gradient_clipped"] += float(norm) > self.engine.gradient_clip
            self.optimiser.step()
            self.ledger.charge_update(self.flops, part.costs_N)
            if self.engine.kl > 0:
                self.ledger.charge_scoring(self.flops, part.costs_N)
        return {
            "loss": sums["loss"] / len(used),
            "gradient_norm": sums["gradient_norm"] / len(used),
            "gradient_clipped": sums["gradient_clipped"] / len(used),
            "clipped": sums["clipped"] / max(1.0, sums["tokens"]),
            "padding": 1.0 - float(selected.costs_N.sum()) / sums["padded"],
            "selected_rollouts": len(selected),
            "distinct_rollouts": len(np.unique(selected.row_N)),
            "selected_tokens": float(selected.costs_N.sum()),
            "loss_tokens": sums["tokens"],
            "effective_sample_size": effective_sample_size(selected.weights_N),
            "largest_weight": float(selected.weights_N.max()),
        }

    def _keep_rollouts(self, step: int, texts: list[str], queries_N: list[Query], rollouts: Rollouts, selected) -> None:
        """The first rollouts of the batch, as text, with how often and with what weight each one trained."""
        for row in range(min(self.engine.kept_rollouts, len(rollouts))):
            hits = np.flatnonzero(selected.row_N == row) if selected is not None else []
            self.log.rollouts.append(
                {
                    "seed": self.seed,
                    "step": step,
                    "family": queries_N[row].family,
                    "prompt": queries_N[row].prompt,
                    "response": texts[row],
                    "reward": float(rollouts.rewards_N[row]),
                    "advantage": float(rollouts.advantages_N[row]),
                    "cost": int(rollouts.costs_N[row]),
                    "times_trained": len(hits),
                    "weight": float(selected.weights_N[hits[0]]) if len(hits) else 0.0,
                }
            )

    def _log_seconds(self, step: int) -> None:
        for phase, seconds in self.phases.items():
            self.log.seconds.append({"seed": self.seed, "step": step, "phase": phase, "seconds": seconds})
        self.phases.clear()
