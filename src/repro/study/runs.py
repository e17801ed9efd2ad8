"""The tables of finished runs, read back for reports."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from repro.files import read_parquet
from repro.paths import RESULTS, TIMINGS

UNCHARGED = ("evaluate", "probe")  # phases that measure; they are no part of what training costs
TIMED = ("seconds",)  # columns that differ from run to run


def load(table: str, arms: Iterable[str], root: Path | None = None) -> pd.DataFrame:
    """One table (steps, evaluations, questions, rollouts or seconds) of all `arms`, with a column `arm` in front."""
    root = root or (TIMINGS if table == "seconds" else RESULTS)
    parts = []
    for arm in arms:
        frame = read_parquet(root / "train" / arm / f"{table}.parquet", f"dvc repro train@{arm}")
        frame.insert(0, "arm", arm)
        parts.append(frame)
    return pd.concat(parts, ignore_index=True)


def evaluations_with_seconds(arms: Iterable[str]) -> pd.DataFrame:
    """`evaluations` with `seconds`: wall-clock of training up to the evaluation, measuring phases left out."""
    arms = list(arms)
    evaluations, seconds = load("evaluations", arms), load("seconds", arms)
    charged = seconds[~seconds["phase"].isin(UNCHARGED)]
    per_step = charged.groupby(["arm", "seed", "step"])["seconds"].sum().groupby(level=["arm", "seed"]).cumsum()
    spent = per_step.reset_index()
    spent["step"] += 1  # what a step costs has been spent when the next evaluation is due
    merged = evaluations.merge(spent, on=["arm", "seed", "step"], how="left")
    merged["seconds"] = merged["seconds"].fillna(0.0)
    return merged
