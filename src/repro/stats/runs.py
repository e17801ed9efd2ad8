"""The tables of finished runs, read back for reports."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from repro.files import read_parquet
from repro.paths import RESULTS, TIMINGS
from repro.settings import Settings

UNCHARGED = ("evaluate", "probe")  # phases that measure; they are no part of what training costs
TIMED = ("seconds",)  # columns that differ from run to run
RUN = ["arm", "seed"]


def compared(settings: Settings) -> list[str]:
    """The baseline and the arms that are compared with it (those without seeds of their own), group by group."""
    groups = list(dict.fromkeys(arm.group for arm in settings.arms.values()))
    return sorted(settings.compared_arms, key=lambda name: groups.index(settings.arms[name].group))


def load(table: str, arms: Iterable[str], root: Path | None = None) -> pd.DataFrame:
    """One table (steps, evaluations, questions, rollouts, selection or seconds) of all `arms`, column `arm` in front.

    `root`: the folder that holds a folder per arm; by default results/train, and timings/train for seconds.
    """
    folder = Path(root) if root else (TIMINGS if table == "seconds" else RESULTS) / "train"
    parts = []
    for arm in arms:
        frame = read_parquet(folder / arm / f"{table}.parquet", "dvc repro" if root else f"dvc repro train@{arm}")
        frame.insert(0, "arm", arm)
        parts.append(frame)
    return pd.concat(parts, ignore_index=True)


def carried_forward(evaluations: pd.DataFrame) -> pd.DataFrame:
    """`evaluations` with every run at every step, sorted by step within a run.

    A run that diverged stopped there, and an arm with steps of its own may have ended before others: the steps that a
    run lacks repeat its last policy's accuracy and its last cost, so that it stays in every mean. ValueError names a
    run that lacks a step up to its arm's last though it did not diverge.
    """
    steps = sorted(evaluations["step"].unique())
    grid = evaluations.set_index([*RUN, "step"], verify_integrity=True)
    runs = dict.fromkeys(zip(evaluations["arm"], evaluations["seed"], strict=True))
    index = pd.MultiIndex.from_tuples([(*run, step) for run in runs for step in steps], names=grid.index.names)
    undefined = grid["accuracy"].reindex(index).isna()
    if undefined.any():
        diverged, last = grid.groupby(level=RUN)["diverged"].any(), evaluations.groupby("arm")["step"].max()
        steps_of = evaluations.groupby("arm")["step"].unique()
        for arm, seed, step in index[undefined]:
            ended = step > last[arm] or step not in steps_of[arm]
            if (not ended and not diverged[arm, seed]) or step == steps[0]:
                raise ValueError(f"{arm} with seed {seed} has no evaluation at step {step}; run `dvc repro` again")
    full = grid.reindex(index)
    full = full.groupby(level=RUN, sort=False).ffill() if undefined.any() else full
    return full.astype(grid.dtypes).reset_index()[evaluations.columns]


def evaluations_with_seconds(
    arms: Iterable[str], data: Path | None = None, timings: Path | None = None
) -> pd.DataFrame:
    """`evaluations`, carried forward, with `seconds`: wall-clock of training up to each, measuring phases left out.

    `data`, `timings`: folders that hold a folder per arm; by default results/train and timings/train.
    ValueError if a run has no seconds: data and timings are then not of the same training.
    """
    arms = list(arms)
    evaluations, seconds = carried_forward(load("evaluations", arms, data)), load("seconds", arms, timings)
    charged = seconds[~seconds["phase"].isin(UNCHARGED)]
    per_step = charged.groupby([*RUN, "step"])["seconds"].sum().groupby(level=RUN).cumsum()
    spent = per_step.reset_index()
    spent["step"] += 1  # what a step costs has been spent when the next evaluation is due
    # The last step before an evaluation, because a run that diverged has none right before it.
    ordered = evaluations.reset_index().sort_values("step", kind="stable")
    merged = pd.merge_asof(ordered, spent.sort_values("step", kind="stable"), on="step", by=RUN)
    merged = merged.sort_values("index").drop(columns="index").reset_index(drop=True)
    missing = merged["seconds"].isna() & (merged["step"] > merged["step"].min())
    if missing.any():
        arm, seed = merged.loc[missing, RUN].iloc[0]
        raise ValueError(f"{arm} with seed {seed} has results but no seconds; run `dvc repro -f train@{arm}`")
    return merged.assign(seconds=merged["seconds"].fillna(0.0))
