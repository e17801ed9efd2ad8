"""The panel of mixes: its runs, and what each mix is like while an arm trains on it."""

import numpy as np
import pandas as pd

from repro.paths import DESIGN
from repro.settings import Mix
from repro.settings.text import read_mapping
from repro.stats import panels

PANEL = "mixes"
WHERE = ["mix", "policy"]


def declared() -> dict[str, Mix]:
    """{name: mix}, as the panel declares them."""
    panel = read_mapping(DESIGN)["panels"][PANEL]
    mixes = {name: Mix.model_validate(entry) for name, entry in panel["settings"]["mixes"].items()}
    return {name: mixes[name] for name in panel["vary"]["mix"]}


def load(table: str) -> pd.DataFrame:
    """A table of the panel with mix, policy, arm and seed in front, mixes in the order of the design; without mixes on
    which not every arm is trained yet, and without base policies that have fewer mixes than others. NoRuns where there
    is none."""
    runs = panels.made([PANEL], ["policy", "arm", "seed", "varied"])
    runs = runs.assign(mix=panels.varied(runs, "mix", str))
    runs, mixes = panels.whole(panels.whole(runs, WHERE), ["policy"]), list(declared())
    named = runs.assign(mix=pd.Categorical(runs["mix"], mixes))[["run", *WHERE, "arm", "seed"]]
    rows = named.sort_values(WHERE, kind="stable").merge(panels.load(table, PANEL), on="run")
    return rows.assign(mix=rows["mix"].astype(str))


def shares() -> pd.DataFrame:
    """Mixes by title × families: the shares of its queries, and `about`, what the mix is meant to be."""
    mixes = declared().values()
    table = pd.DataFrame({mix.title: mix.shares for mix in mixes}).T.fillna(0.0)
    return table.assign(about=[mix.about for mix in mixes])


def described(batches: pd.DataFrame, curves: pd.DataFrame, arm: str) -> pd.DataFrame:
    """A row per mix and base policy, means over the seeds and logged batches of `arm`:

    start         accuracy before training
    silent        share of rollouts whose advantage is 0
    correlation   of |A| and cost over a batch
    factor        what draws by |A|/√cost should cost, relative to uniform ones: see `predicted`
    """
    own = batches[batches["arm"] == arm]
    own = own.assign(factor=predicted(own))
    rows = own.groupby(WHERE, sort=False)[["silent", "correlation", "factor"]].mean()
    first = curves[(curves["arm"] == arm) & (curves["step"] == 0)]
    rows.insert(0, "start", first.groupby(WHERE)["accuracy"].mean())
    return rows.reset_index()


def predicted(batches: pd.DataFrame) -> np.ndarray:
    """factor_B = (Σ|A|√c)² / (Σc ΣA²) of each batch: what reaching a given error costs by draws with p ∝ |A|/√c, over
    what it costs by uniform draws (Cost-Aware Learning, eq. 8, with |A| for the gradient's norm). At most 1, by Cauchy
    and Schwarz; NaN where every advantage is 0."""
    uniform = (batches["cost"] * batches["square"]).to_numpy(float)
    optimal = batches["optimal"].to_numpy(float) ** 2
    return np.divide(optimal, uniform, out=np.full(len(uniform), np.nan), where=uniform > 0)
