"""The two competitors, each in its own process: `python -m benchmarks.competitors embedded|trl FOLDER BATCHES`.

A competitor prints "ready" after its warm-up batch. For every line it then reads, it processes one batch and answers
with one line of JSON: wall and CPU seconds, and the work done.
"""

import json
import os
import resource
import sys
import time
from itertools import cycle
from pathlib import Path

import torch

from benchmarks.task import GROUP, MINIBATCH, ROLLOUTS, UPDATES, Task
from repro.paths import BUILD
from repro.policy.model import load_policy
from repro.tasks.queries import verify


class Clock:
    """Waits for the signal, times one batch and reports it. The work of a batch is collected in `work`."""

    def __init__(self, work: dict[str, float]):
        self.work, self.answers = work, os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)  # keep libraries' output out of the pipe

    def wait(self) -> None:
        """Print the measurement (or "ready"), then wait for the next request."""
        print(json.dumps(self.work) if self.work.get("seconds") else "ready", file=self.answers)
        if not sys.stdin.readline():
            sys.exit()
        self.work.update(dict.fromkeys(self.work, 0.0))
        self.started, self.started_cpu = time.perf_counter(), self._cpu()

    def stop(self) -> None:
        """The batch is done. Does nothing for the warm-up batch, which was not requested."""
        if hasattr(self, "started"):
            self.work["seconds"] = time.perf_counter() - self.started
            self.work["cpu_seconds"] = self._cpu() - self.started_cpu

    @staticmethod
    def _cpu() -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime


def embedded(task: Task, folder: Path, batches: int) -> None:
    """The embedded engine, arm `grpo`."""
    trainer = embedded_trainer(task, folder)
    work = dict.fromkeys(("seconds", "cpu_seconds", "updates", "response_tokens", "reward"), 0.0)
    clock = Clock(work)
    for step in range(1 + batches):
        before = trainer.ledger.row()
        trainer.step(step)
        clock.stop()
        after = trainer.ledger.row()
        work["updates"] = after["updates"] - before["updates"]
        work["response_tokens"] = (after["generated_tokens"] - before["generated_tokens"]) / ROLLOUTS
        work["reward"] = trainer.log.steps[-1]["reward"]
        clock.wait()


def embedded_trainer(task: Task, folder: Path):
    """A Trainer that takes the task's queries in order, without evaluation and KL probe."""
    from repro import arms
    from repro.engine.train import Data, Trainer
    from repro.methods.plans import PlannedGroup, PlanStream

    model, tokenizer = load_policy(folder)
    engine = task.settings.engine.model_copy(
        update={"rollouts_per_step": ROLLOUTS, "minibatch": MINIBATCH, "kl": 0.0, "kl_probe": 0, "kept_rollouts": 0}
    )
    method = arms.build("grpo", task.settings.arms["grpo"])
    data = Data(task.queries, [])
    trainer = Trainer(method, engine, task.settings.evaluation, model, None, tokenizer, data, seed=0)
    trainer.plan = PlanStream(PlannedGroup(query, GROUP) for query in cycle(range(len(task.queries))))
    return trainer


def trl(task: Task, folder: Path, batches: int) -> None:
    """TRL's GRPOTrainer with the settings that were fastest here.

    Defaults that were fastest: the fused AdamW and the dynamic cache (the static one took 15% longer); one slice per
    mini-batch of 64 (2 × 32: 5% longer, 4 × 16: 20% longer). It computes the old log-probabilities in a separate pass,
    which it needs for four optimiser steps per batch of rollouts.
    """
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = load_policy(folder)
    engine = task.settings.engine
    work = dict.fromkeys(("seconds", "cpu_seconds", "updates", "response_tokens", "reward"), 0.0)
    clock = Clock(work)

    def reward(completions, completion_ids, index, **rest):
        work["response_tokens"] = sum(map(len, completion_ids)) / ROLLOUTS
        finished = [ids[-1] == tokenizer.eos_token_id for ids in completion_ids]
        rows = zip(completions, finished, index, strict=True)
        rewards = [verify(text, task.queries[i]) if done else 0.0 for text, done, i in rows]
        work["reward"] = sum(rewards) / ROLLOUTS
        return rewards

    class BatchByBatch(TrainerCallback):
        def on_step_end(self, arguments, state, control, **rest):
            work["updates"] += 1
            if state.global_step % UPDATES == 0:
                clock.stop()
                clock.wait()

    config = GRPOConfig(
        output_dir=str(BUILD / "benchmark" / "trl"),
        max_steps=UPDATES * (1 + batches),
        per_device_train_batch_size=MINIBATCH,
        gradient_accumulation_steps=1,
        steps_per_generation=UPDATES,
        num_generations=GROUP,
        max_completion_length=engine.max_new_tokens,
        temperature=engine.temperature,
        learning_rate=engine.learning_rate,
        lr_scheduler_type="constant",
        weight_decay=engine.weight_decay,
        adam_beta2=0.95,
        max_grad_norm=engine.gradient_clip,
        beta=0.0,
        loss_type="grpo",
        epsilon=0.2,
        epsilon_high=0.28,
        shuffle_dataset=False,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    rows = [{"prompt": query.prompt, "index": index} for index, query in enumerate(task.queries)]
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[BatchByBatch()],
    )
    trainer.train()


if __name__ == "__main__":
    torch.set_num_threads(1)
    competitor, folder, batches = sys.argv[1:]
    {"embedded": embedded, "trl": trl}[competitor](Task.load(), Path(folder), int(batches))
