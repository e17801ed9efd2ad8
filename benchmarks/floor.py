"""The embedded engine's time by phase, compared with the arithmetic floor of this machine.

The floor of a phase is its FLOPs (repro.policy.flops) at the fastest rate at which one thread multiplied matrices of
the policy's shapes here. `python -m benchmarks.floor FOLDER BATCHES` prints it as JSON.
"""

import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.competitors import embedded_trainer
from benchmarks.task import GROUP, ROLLOUTS, Task

PHASES = ("prefill", "decode", "sample", "verify", "select", "forward", "backward", "optimiser", "rest")


class Stopwatch:
    """Seconds by phase within one step, measured with hooks, without changes to the engine."""

    def __init__(self, trainer):
        self.trainer, self.seconds = trainer, defaultdict(float)
        trainer.model.register_forward_pre_hook(self._enter, with_kwargs=True)
        trainer.model.register_forward_hook(self._leave, with_kwargs=True)
        trainer.optimiser.register_step_pre_hook(lambda *_: self._start())
        trainer.optimiser.register_step_post_hook(lambda *_: self._stop("optimiser"))

    def step(self, step: int) -> dict[str, float]:
        """Seconds by phase of one training step; they sum to its seconds."""
        self.seconds.clear()
        self.trainer.log.seconds.clear()
        backward = torch.Tensor.backward

        def timed_backward(tensor, *arguments, **options):
            self._start()
            backward(tensor, *arguments, **options)
            self._stop("backward")

        started = time.perf_counter()
        with patch.object(torch.Tensor, "backward", timed_backward):
            self.trainer.step(step)
        total = time.perf_counter() - started
        logged = {row["phase"]: row["seconds"] for row in self.trainer.log.seconds}
        seconds = dict(self.seconds)
        seconds["sample"] = logged["generate"] - seconds["prefill"] - seconds["decode"]
        seconds |= {phase: logged[phase] for phase in ("verify", "select")}
        return seconds | {"rest": total - sum(seconds.values())}

    def _start(self) -> None:
        self.started = time.perf_counter()

    def _stop(self, phase: str) -> None:
        self.seconds[phase] += time.perf_counter() - self.started

    def _enter(self, model, arguments, options) -> None:
        self._start()

    def _leave(self, model, arguments, options, output) -> None:
        prompts = options["input_ids"].shape[1] > 1
        self._stop("forward" if torch.is_grad_enabled() else "prefill" if prompts else "decode")


def flops_by_phase(trainer, prompt_tokens_Q: np.ndarray, before: dict[str, float]) -> dict[str, float]:
    """FLOPs charged to the ledger since `before`, split into prefill and decode, forward and backward."""
    after = trainer.ledger.row()
    generated, trained = (after[name] - before[name] for name in ("flops_generate", "flops_train"))
    prefill = trainer.flops.forward(prompt_tokens_Q)
    return {"prefill": prefill, "decode": generated - prefill, "forward": trained / 3, "backward": 2 * trained / 3}


def peak_flops(model, rows: tuple[int, ...] = (64, 256, 1024), seconds: float = 0.2) -> float:
    """FLOP/s of the fastest multiplication of activations (`rows` tokens) by a weight of the model, in float32."""
    shapes = {tuple(parameter.shape) for parameter in model.parameters() if parameter.dim() == 2}
    best = 0.0
    for outputs, inputs in shapes:
        for n in rows:
            left, right = torch.randn(n, inputs), torch.randn(inputs, outputs)
            product = torch.empty(n, outputs)
            started = time.perf_counter()
            while time.perf_counter() - started < seconds:
                begun = time.perf_counter()
                for _ in range(20):
                    torch.mm(left, right, out=product)
                best = max(best, 20 * 2.0 * n * inputs * outputs / (time.perf_counter() - begun))
    return best


def measure(task: Task, folder: Path, batches: int) -> dict:
    """Median seconds, mean FLOPs and floor of every phase, over `batches` after a warm-up batch."""
    trainer = embedded_trainer(task, folder)
    watch, seconds, flops = Stopwatch(trainer), [], []
    for step in range(1 + batches):
        before = trainer.ledger.row()
        groups = [(step * ROLLOUTS // GROUP + i) % len(task.queries) for i in range(ROLLOUTS // GROUP)]
        seconds.append(watch.step(step))
        flops.append(flops_by_phase(trainer, np.array([len(trainer.prompts[group]) for group in groups]), before))
    peak = peak_flops(trainer.model)
    rows = []
    for phase in PHASES:
        mean_flops = float(np.mean([row.get(phase, 0.0) for row in flops[1:]]))
        median = float(np.median([row[phase] for row in seconds[1:]]))
        rows.append({"phase": phase, "seconds": median, "flops": mean_flops, "floor_seconds": mean_flops / peak})
    return {"peak_gflops": peak / 1e9, "phases": rows}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measure(Task.load(), Path(sys.argv[1]), int(sys.argv[2]))))
