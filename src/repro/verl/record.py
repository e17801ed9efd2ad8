"""The output of a run on verl: the tables and the ledger of the embedded engine, so that the same reports apply.

Differences between the engines: `scored_tokens` also counts verl's pass for π_old, which the embedded engine does not
need, of the rollouts that are trained on or, where a sampler reads entropies or log-probabilities, of all; `clipped` is
a mean over micro-batches; `entropy` covers only rollouts that passed the filter, and is estimated from sampled tokens
where no sampler reads it; `kl` is measured only if verl evaluates the reference policy anyway (for a KL term), on the
rollouts that are trained on, otherwise it is NaN. Seconds are wall time of the controller.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from repro.engine.runs import tables_of
from repro.files import read_parquet, write_parquet, write_text
from repro.methods.advantages import groups_without_signal
from repro.methods.rollouts import Rollouts
from repro.policy.flops import FlopCounter
from repro.protocol.ledger import Ledger
from repro.protocol.log import SELECTED, UPDATED, Log, describe_selection, rollout_rows, selection_rows
from repro.protocol.saved import LEDGER, LOG, ROWS
from repro.stored import read_stored
from repro.verl.batch import Scored
from repro.verl.data import QueryInfo
from repro.verl.peaks import SOURCES, by_source

PHASES = {
    "profile": "profile",
    "gen": "generate",
    "old_log_prob": "score",
    "ref": "score",
    "adv": "select",
    "update_actor": "update",
    "update_weights": "synchronise",
    "testing": "evaluate",
    "save_checkpoint": "checkpoint",
}


@dataclass
class Record:
    """Log and ledger of one run. `every`: steps between logs of single rollouts; `kept`: how many of them with text;
    `budget_gflops`: settings.evaluation's."""

    seed: int
    every: int
    kept: int
    flops: FlopCounter
    budget_gflops: float | None = None
    ledger: Ledger = field(default_factory=Ledger)
    log: Log = field(default_factory=Log)
    sources: list[dict[str, Any]] = field(default_factory=list)  # evaluations of each data source

    def charge(self, scored: Scored) -> None:
        """Charge the generation of whole groups."""
        _, first, sizes = np.unique(scored.group_N, return_index=True, return_counts=True)
        self.ledger.charge_generation(self.flops, scored.prompt_tokens_N[first], sizes, scored.response_tokens_N)

    def add_step(
        self, step: int, metrics: Mapping[str, float], selected: Rollouts | None, updates: Sequence[Mapping[str, float]]
    ) -> None:
        """A training step: `metrics` over everything generated, the selection, and the metrics of each update."""
        row = {"seed": self.seed, "step": step, "skipped": selected is None, **metrics}
        row |= dict.fromkeys((*SELECTED, *UPDATED), float("nan"))
        if selected is not None:
            row |= describe_selection(selected)
        if updates:
            row |= mean_update(updates)
        self.log.steps.append({**row, **self.ledger.row()})

    def add_rollouts(
        self,
        step: int,
        scored: Scored,
        queries: Mapping[int, QueryInfo],
        rollouts: Rollouts,
        selected: Rollouts | None,
        texts: Sequence[str],
    ) -> None:
        """The rollouts of a step in numbers, some with texts."""
        at = {"seed": self.seed, "step": step}
        rows = selection_rows(at, scored.index_N, queries, rollouts, selected)
        self.log.selection += rows
        self.log.rollouts += rollout_rows(rows, texts[: self.kept], queries)

    def evaluated(self, step: int) -> bool:
        """Whether the policy has been evaluated after `step` steps."""
        return any(row["step"] == step for row in self.log.evaluations)

    def add_evaluation(
        self,
        step: int,
        samples: int,
        infos: Mapping[str, Sequence[float]],
        queries: Mapping[int, QueryInfo],
        *,
        diverged: bool,
        last: bool,
        sources: Sequence[str] | None = None,
    ) -> None:
        """An evaluation from the reward manager's output for every sample, and of each data source if `sources` names
        every sample's; the last one also per question. Questions count alike, however many samples each has."""
        unknown = [float("nan")] * len(infos["acc"])
        columns = {"successes": infos["acc"]}
        columns |= {"tokens": infos.get("response_tokens", unknown), "truncated": infos.get("truncated", unknown)}
        table = pd.DataFrame({"query": infos["query"], **columns})
        means = table.groupby("query")[list(columns)].mean().mean().astype(float)
        summary = {"accuracy": means["successes"], "response_tokens": means["tokens"], "truncated": means["truncated"]}
        if self.evaluated(step):
            return
        row = {"seed": self.seed, "step": step, "samples": samples, **summary, "diverged": diverged}
        self.log.evaluations.append({**row, **self.ledger.spent(self.budget_gflops)})
        if sources is not None:
            of_each = by_source(table.assign(source=list(sources)))
            self.sources += [{"seed": self.seed, "step": step, **entry, **self.ledger.row()} for entry in of_each]
        if last:
            self.log.questions = []  # of a shorter run that was extended
            for name, counts in table.groupby("query", sort=True).sum().iterrows():
                query = int(name) if isinstance(name, int | np.integer) else name
                info = {"query": query, "family": queries[query].family, "prompt": queries[query].prompt}
                totals = {column: int(counts[column]) for column in columns if np.isfinite(counts[column])}
                self.log.questions.append({"seed": self.seed, **info, "samples": samples, **totals})

    def add_seconds(self, step: int, timing: Mapping[str, float]) -> None:
        """verl's timings of one step, mapped to the phases of the embedded engine."""
        totals: dict[str, float] = {}
        for name, phase in PHASES.items():
            if name in timing:
                totals[phase] = totals.get(phase, 0.0) + float(timing[name])
        self.log.seconds += [
            {"seed": self.seed, "step": step, "phase": phase, "seconds": seconds} for phase, seconds in totals.items()
        ]

    def write(self, folder: Path) -> None:
        """Write one parquet per non-empty table."""
        for name, table in tables_of([self.log]).items():
            if len(table):
                write_parquet(table, folder / f"{name}.parquet")
        if self.sources:
            write_parquet(pd.DataFrame(self.sources), folder / f"{SOURCES}.parquet")

    def save(self, path: Path, **more: Any) -> None:
        """Save the state next to a verl checkpoint; `more`: anything else a resumed run needs."""
        state = {"log": asdict(self.log), "ledger": self.ledger.row(), SOURCES: self.sources}
        write_text(json.dumps({**state, **more}, default=float), path)

    def restore(self, path: Path, **more: Any) -> dict[str, Any]:
        """Restore what `save` wrote, and return all of it; `more`: the type of anything else that a run needs."""
        remedy = "remove this checkpoint, and the run goes on from an earlier one"
        state = read_stored(path, remedy, {"log": LOG, "ledger": LEDGER, SOURCES: ROWS, **more})
        self.log, self.ledger = Log(**state["log"]), Ledger.from_row(state["ledger"])
        self.sources = state[SOURCES]
        return state


def describe(scored: Scored) -> dict[str, float]:
    """Metrics over everything generated in a step, kept or not."""
    return {
        "reward": float(scored.rewards_N.mean()),
        "accuracy": float((scored.verdicts_N == 1.0).mean()),
        "groups_without_signal": groups_without_signal(scored.rewards_N, scored.group_N),
        "response_tokens": float(scored.response_tokens_N.mean()),
        "truncated": float(1.0 - scored.finished_N.mean()),
    }


def mean_update(updates: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """UPDATED from each mini-batch's loss, grad_norm, limit (where the norm is clipped), clipped, rows and tokens."""
    columns = {name: np.array([update[name] for update in updates]) for name in updates[0]}
    values = (
        float(columns["loss"].mean()),
        float(columns["grad_norm"].mean()),
        float((columns["grad_norm"] > columns["limit"]).mean()),
        float((columns["clipped"] * columns["tokens"]).sum() / max(1.0, columns["tokens"].sum())),
        float(columns["rows"].sum()),
        float(columns["tokens"].sum()),
    )
    return dict(zip(UPDATED, values, strict=True))


def gather(runs: Sequence[Path], folder: Path) -> None:
    """Concatenate the tables of several runs (the seeds of one arm, a folder each) into the tables of the arm."""
    for name in (*asdict(Log()), SOURCES):
        files = [run / f"{name}.parquet" for run in runs]
        parts = [read_parquet(path, "the same command") for path in files if path.exists()]
        if parts:
            write_parquet(pd.concat(parts, ignore_index=True), folder / f"{name}.parquet")
