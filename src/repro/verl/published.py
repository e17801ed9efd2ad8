"""A run compared with its row in a paper's tables, on each benchmark: `python -m repro.verl --peaks RUN --paper`.

configs/papers/tables has every number that the papers print by benchmark, at each scale of configs/verl/presets/papers,
in percent. Cost-Aware Learning's tables 1, 6, 7 and 8: the best checkpoint, mean@32; AMC is amc23 (§5.1 names no
years), its sampled rows are read in the order p, p^β, whose β we do not have: the first is compared with our β of 0.3.
D³S's tables 1, 2, 6 and 7: pass@1, 8 and 16 of 32; its MATH is math500. What two tables print, the first is taken.
"""

import numpy as np
import pandas as pd

from repro.paths import CONFIGS
from repro.settings import SettingsError
from repro.stats import tables

FILES = sorted((CONFIGS / "papers" / "tables").glob("*.csv"))
KEYS = ["table", "scale", "method", "arm", "metric"]
WIDTH = 1.96  # standard errors on each side of a 95% interval


def printed() -> pd.DataFrame:
    """table, scale, method, arm, metric, source and percent: a row for each number of the papers' tables."""
    return pd.concat([pd.read_csv(file).melt(KEYS, var_name="source", value_name="percent") for file in FILES])


def compared(headlines: pd.DataFrame, scale: str, arm: str) -> pd.DataFrame:
    """A row for each benchmark that the paper's row and the run have. `headlines`: of repro.verl.peaks.

    yours      percent, the mean over seeds of the peaks: estimate, low and high, ± 1.96 standard errors over questions,
               which the seeds have in common; the paper prints no error
    paper      percent; and the difference of yours from it, as wide as yours
    SettingsError if the papers have no such row, or none of its benchmarks was evaluated.
    """
    rows = printed().query("scale == @scale and metric == 'pass@1'")
    of_arm = rows[rows.arm == arm].drop_duplicates("source").set_index("source")
    if of_arm.empty:
        known = ", ".join(rows.arm.dropna().unique()) or ", ".join(sorted(printed().scale.unique()))
        raise SettingsError(f"no paper's table has arm {arm} at scale {scale}; they have {known}")
    found = headlines[headlines.source.isin(of_arm.index)].groupby("source", sort=False)
    if not found.ngroups:
        names = ", ".join(of_arm.index.drop("average"))
        raise SettingsError(f"the run was not evaluated on what the paper's row has: evaluate it on {names}")
    yours, error = 100 * found.accuracy.mean(), 100 * np.sqrt(found.standard_error.apply(lambda each: (each**2).mean()))
    paper = of_arm.percent[yours.index]
    columns = {"table": of_arm.table[yours.index], "seeds": found.size(), "samples": found.samples.min()}
    columns |= {"yours": interval(yours, error), "paper": paper, "difference": interval(yours - paper, error)}
    return pd.DataFrame(columns).reset_index(names="source")


def interval(value: pd.Series, error: pd.Series) -> pd.Series:
    """`value [low, high]` of each, one decimal."""
    ends = zip(value, value - WIDTH * error, value + WIDTH * error, strict=True)
    return pd.Series([tables.interval(*row, ".1f") for row in ends], value.index)
