"""The tables of finished runs, read back for reports."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from repro.files import Unreadable, read_parquet
from repro.paths import RESULTS, TIMINGS
from repro.settings import Settings
from repro.stats import atlas, panel

UNCHARGED = ("evaluate", "probe")  # phases that measure; they are no part of what training costs
TIMED = ("seconds",)  # columns that differ from run to run
RUN = ["arm", "seed"]
TENTHS = 10  # of the budget: the points of a curve that is a mean over runs


def compared(settings: Settings) -> list[str]:
    """The baseline and the arms that are compared with it (those without seeds of their own), group by group."""
    groups = list(dict.fromkeys(arm.group for arm in settings.all_arms.values()))
    return sorted(settings.compared_arms, key=lambda name: groups.index(settings.arm(name).group))


def load(table: str, arms: Iterable[str], root: Path | None = None) -> pd.DataFrame:
    """One table (steps, evaluations, questions, rollouts, selection or seconds) of all `arms`, column `arm` in front.

    `root`: the folder that holds a folder per arm; by default results/train, and timings/train for seconds.
    """
    folder = Path(root) if root else (TIMINGS if table == "seconds" else RESULTS) / "train"
    parts = []
    for arm in arms:
        made_by = "dvc repro" if root else f"dvc repro train@{arm}"
        file = folder / arm / f"{table}.parquet"
        frame = read_parquet(file, made_by, ["seed"])
        if frame.empty and table == "evaluations":  # every run begins with one
            raise Unreadable(f"{file} has no rows: delete it and run `{made_by}`")
        frame.insert(0, "arm", arm)
        parts.append(frame)
    return pd.concat(parts, ignore_index=True)


def study(table: str, settings: Settings) -> pd.DataFrame:
    """`load` of every arm of the tables: from the atlas where `settings.atlas_panel` names a panel, else of the runs
    trained here. So are arms that the panel has not as they are now (repro.stats.panel), and those with own seeds."""
    if settings.atlas_panel is None:
        return load(table, settings.arms)
    known = panel.arms_of(settings)
    compared = atlas.of_seeds(table, settings.atlas_panel, known, settings.seeds)
    own = [name for name in settings.arms if name not in known]
    if not own:
        return compared
    trained = load(table, own)
    rounded = {name: "float32" for name in trained.select_dtypes("float64") if not name.startswith("flops")}
    trained = trained.astype(rounded).astype(dict.fromkeys(rounded, "float64"))  # as the atlas stores them
    return pd.concat([compared, trained], ignore_index=True)


def at_budgets(evaluations: pd.DataFrame) -> pd.DataFrame:
    """`evaluations` with every run at the same shares of the budget, 0, 0.1, 0.2, …, beyond the one that spent most.

    Runs are evaluated at the first step after a tenth of the budget is spent, so at steps of their own; here accuracy
    and every running total (`step` too) are read off at the tenths, linear between a run's evaluations. After its last
    evaluation a run keeps its accuracy and its totals, so that an arm that spends less, or a run that diverged, stays
    in every mean; the last share of every run is where it ended. `diverged` is the whole run's. Where no budget is
    known (no `share`, or NaN) shares are of the steps. ValueError names a run that ends before its arm's others though
    it did not diverge.
    """
    place = _places(evaluations)
    last = int(np.ceil(round(TENTHS * place.max(), 6)))
    share_E = np.arange(last + 1) / TENTHS
    ends = evaluations.groupby("arm")["step"].max()
    measured = [name for name in evaluations.select_dtypes("number") if name not in (*RUN, "share")]
    parts = []
    for (arm, seed), run in evaluations.assign(share=place).groupby(RUN, sort=False):
        run = run.sort_values("share", kind="stable")
        diverged = bool(run["diverged"].any())
        if run["step"].iloc[-1] < ends[arm] and not diverged:
            raise ValueError(f"{arm} with seed {seed} has no evaluation at step {ends[arm]}; run `dvc repro` again")
        columns = {name: np.interp(share_E, run["share"], run[name]) for name in measured}
        parts.append(pd.DataFrame({"arm": arm, "seed": seed, **columns, "diverged": diverged, "share": share_E}))
    return pd.concat(parts, ignore_index=True)


def _places(evaluations: pd.DataFrame) -> pd.Series:
    if "share" in evaluations and evaluations["share"].notna().all():
        return evaluations["share"]
    return evaluations["step"] / max(1, evaluations["step"].max())


def last_of(evaluations: pd.DataFrame) -> pd.DataFrame:
    """The last evaluation of every run, indexed by arm and seed."""
    return evaluations.sort_values("step").groupby(RUN).last()


def evaluations_with_seconds(
    arms: Iterable[str], data: Path | None = None, timings: Path | None = None
) -> pd.DataFrame:
    """`evaluations` with `seconds`: wall-clock of training up to each, measuring phases left out.

    `data`, `timings`: folders that hold a folder per arm; by default results/train and timings/train.
    ValueError if a run has no seconds: data and timings are then not of the same training.
    """
    arms = list(arms)
    evaluations, seconds = load("evaluations", arms, data), load("seconds", arms, timings)
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
        raise Unreadable(f"{arm} with seed {seed} has results but no seconds; run `dvc repro -f train@{arm}`")
    return merged.assign(seconds=merged["seconds"].fillna(0.0))
