"""Base policies and the policies that training ends with: how often one of k samples is right, by temperature."""

from collections.abc import Sequence

import pandas as pd

from repro.stats import panels
from repro.stats.pass_at_k import pass_at_k

PANEL, OWN = "sharpening", "sharpening-own"  # the second at rates of the arms' own
BASE = "base"  # what stands in the place of an arm
KEYS = ["policy", "arm", "seed"]


def load(panel: str = PANEL) -> pd.DataFrame:
    """A panel's rows of `temperatures` with policy, arm and seed, those of the base policies as arm BASE with seed 0;
    of base policies on which every arm is made. NoRuns where there is none."""
    runs = panels.whole(panels.made([panel], KEYS), ["policy"])[["run", *KEYS]]
    bases = runs.drop_duplicates("policy").assign(arm=BASE, seed=0)
    bases["run"] = [f"{panel}/{policy}/{BASE}" for policy in bases["policy"]]
    rows = pd.concat([bases, runs]).merge(panels.load("temperatures", panel), on="run")
    return rows.assign(temperature=rows["temperature"].astype(float).round(2))


def scores(table: pd.DataFrame, ks: Sequence[int]) -> pd.DataFrame:
    """A row per run (the index: policy, arm, seed), columns (temperature, k): pass@k, the mean over held-out queries;
    of a temperature, those of `ks` for which it has samples."""
    columns = {}
    for temperature, own in table.groupby("temperature"):
        for k in (k for k in ks if k <= own["samples"].min()):
            rate = pass_at_k(own["successes"].to_numpy(), own["samples"].to_numpy(), k)
            columns[temperature, k] = own[KEYS].assign(rate=rate).groupby(KEYS, sort=False)["rate"].mean()
    wide = pd.DataFrame(columns)
    return wide.rename_axis(columns=["temperature", "k"])
