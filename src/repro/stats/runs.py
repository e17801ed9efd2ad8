"""The tables of finished runs, a row per evaluation, on the way and at the end."""

import numpy as np
import pandas as pd

from repro.settings import Settings

RUN = ["arm", "seed"]
TENTHS = 10  # of the budget: the points of a curve that is a mean over runs


def compared(settings: Settings) -> list[str]:
    """The baseline and the arms that are compared with it (those without seeds of their own), group by group."""
    groups = list(dict.fromkeys(arm.group for arm in settings.all_arms.values()))
    return sorted(settings.compared_arms, key=lambda name: groups.index(settings.arm(name).group))


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
