"""The embedded engine as a competitor, one training step or one evaluation per request:

    python -m benchmarks.engine_worker POLICY

PYTHONPATH and REPRO_ROOT decide whose code runs: that of this commit, or that of bbba75f, whose modules have other
names.
"""

import hashlib
import sys
import time
from collections import defaultdict
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from itertools import cycle

import numpy as np
import torch

from benchmarks.products import counted, named
from benchmarks.worker import Requests
from benchmarks.workload import FIXED, GROUP, RACE, pools, race_queries, section
from repro import arms
from repro.policy.model import load_policy
from repro.protocol.ledger import Ledger
from repro.settings import Arm

OLD = find_spec("repro.engine.embedded") is not None
PACKAGE, METHODS = ("repro.engine.embedded", "repro") if OLD else ("repro.engine", "repro.methods")
train, evaluation, plans = (
    import_module(name) for name in (f"{PACKAGE}.train", f"{PACKAGE}.evaluate", f"{METHODS}.plans")
)
COUNTED = ("generated_tokens", "trained_tokens", "updates", "flops_generate", "flops_train")


def arm_of(name: str) -> Arm:
    """The arm, with those of its samplers' parameters that the code that runs has."""
    arm, samplers = Arm(title=name, about="", group="", **FIXED["arms"][name]), []
    for sampler, parameters in arm.samplers:
        known = signature(getattr(import_module(f"{METHODS}.samplers.{sampler}"), sampler)).parameters
        samplers.append((sampler, {key: value for key, value in parameters.items() if key in known}))
    return arm.model_copy(update={"samplers": samplers})


class Competitor:
    """One run at a time."""

    def __init__(self, policy: str):
        self.policy = policy

    def begin(self, arm: str, seed: int) -> dict:
        """A new run of the study from the base policy."""
        self._begin(arm, seed, pools().train)
        return {"queries": hashlib.sha256(repr([q.prompt for q in pools().train]).encode()).hexdigest()}

    def begin_race(self) -> dict:
        """The run against TRL: GRPO on the queries in their fixed order."""
        queries = race_queries()
        self._begin("grpo", 0, queries, **RACE["engine"])
        groups = (plans.PlannedGroup(query, GROUP) for query in cycle(range(len(queries))))
        self.trainer.plan = plans.PlanStream(groups)
        return {}

    def _begin(self, arm: str, seed: int, queries: list, **engine: object) -> None:
        (model, self.tokenizer), (reference, _) = load_policy(self.policy), load_policy(self.policy)
        self.trainer = train.Trainer(
            arms.build(arm, arm_of(arm)),
            section("engine", **engine),
            section("evaluation"),
            model,
            reference,
            self.tokenizer,
            train.Data(queries, pools().evaluation),
            seed,
        )
        if not OLD:  # whose products nobody asks for
            self.trainer.timed = named(self.trainer.timed)
        self.seed, self.done = seed, 0

    def step(self, recorded: bool = False) -> dict:
        """The next training step: CPU seconds by phase, and what the ledger charged for it. `recorded`: slowly, and
        with the seconds of its matrix products by phase."""
        before, products = self.trainer.ledger.row(), defaultdict(float)
        self.trainer.log.seconds.clear()
        with counted(products) if recorded else nullcontext():
            self.trainer.step(self.done)
        self.done += 1
        after, phases = self.trainer.ledger.row(), {}
        for row in self.trainer.log.seconds:
            phases[row["phase"]] = phases.get(row["phase"], 0.0) + row["seconds"]
        return {"phases": phases, "products": products, **{name: after[name] - before[name] for name in COUNTED}}

    def evaluate(self, samples: int, recorded: bool = False) -> dict:
        """An evaluation on the held-out queries. FLOPs as if the responses to a query were equally long."""
        chosen, queries, products = section("evaluation"), pools().evaluation, defaultdict(float)
        with counted(products, "evaluation") if recorded else nullcontext():
            outcome = evaluation.evaluate(
                self.trainer.model,
                self.tokenizer,
                queries,
                samples=samples,
                batch_rollouts=chosen.batch_rollouts,
                max_new_tokens=section("engine").max_new_tokens,
                temperature=chosen.temperature,
                seed=1000 * self.seed + self.done,
            )
        prompt_tokens_Q = np.array([len(ids) for ids in self.tokenizer([q.prompt for q in queries])["input_ids"]])
        ledger, sizes_Q = Ledger(), [samples] * len(queries)
        ledger.charge_generation(
            self.trainer.flops, prompt_tokens_Q, sizes_Q, np.repeat(outcome["tokens"] / samples, samples)
        )
        return {
            "products": products,
            "flops": ledger.flops_generate,
            "tokens": int(outcome["tokens"].sum()),
            "accuracy": float(outcome["successes"].sum() / (samples * len(queries))),
        }

    def peak(self, rows: tuple[int, ...] = (64, 256, 1024), seconds: float = 0.2) -> dict:
        """FLOP/s of the fastest multiplication of activations (`rows` tokens) by a weight of the model, in float32."""
        shapes = {tuple(parameter.shape) for parameter in self.trainer.model.parameters() if parameter.dim() == 2}
        best = 0.0
        for outputs, inputs in shapes:
            for n in rows:
                left, right = torch.randn(n, inputs), torch.randn(inputs, outputs)
                product, started = torch.empty(n, outputs), time.perf_counter()
                while time.perf_counter() - started < seconds:
                    begun = time.perf_counter()
                    for _ in range(20):
                        torch.mm(left, right, out=product)
                    best = max(best, 20 * 2.0 * n * inputs * outputs / (time.perf_counter() - begun))
        return {"flops_per_second": best}


if __name__ == "__main__":
    torch.set_num_threads(1)
    requests, competitor = Requests(), Competitor(sys.argv[1])
    requests.serve({name: getattr(competitor, name) for name in ("begin", "begin_race", "step", "evaluate", "peak")})
