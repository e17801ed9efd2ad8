"""One optimiser step on a batch, two or four: what suits an arm that keeps a part of it, each at a rate of its own?"""

import pandas as pd

from repro.experiments.rates.sensitivity import chosen_elsewhere
from repro.stats import panels
from repro.stats.outcomes import outcomes
from repro.stats.panels import RATE, NoRuns

PANEL, BESIDE = "optimiser-steps", "tuning"  # the second has the study's own number of steps
MINIBATCH = "engine.minibatch"


def by_steps(rollouts: int, minibatch: int) -> pd.DataFrame:
    """A row per run: arm, policy, steps (optimiser steps on a batch of `rollouts`), rate, area (under the curve;
    repro.stats.outcomes). Runs of PANEL, and those of BESIDE with the same arms, base policies and rates, whose
    mini-batch was `minibatch`. Of base policies on which every run is made; NoRuns where there is none."""
    own = _known(panels.whole(panels.made([PANEL]), ["policy"]), PANEL, rollouts, minibatch)
    beside = _known(panels.load("runs", BESIDE), BESIDE, rollouts, minibatch)
    same = beside.merge(own[["arm", "policy", "rate"]].drop_duplicates())
    table = pd.concat([own, same], ignore_index=True)
    return table.sort_values(["arm", "policy", "steps", "rate"], kind="stable", ignore_index=True)


def _known(runs: pd.DataFrame, panel: str, rollouts: int, minibatch: int) -> pd.DataFrame:
    area = runs["run"].map(outcomes(panels.load("curves", panel))["area"])
    counts = rollouts // panels.varied(runs, MINIBATCH, int, minibatch)
    return runs[["arm", "policy"]].assign(steps=counts, rate=panels.varied(runs, RATE, float), area=area)


def at_chosen_rates(table: pd.DataFrame) -> pd.DataFrame:
    """A row per arm, base policy and number of steps: chosen, the rate of the highest mean area on the *other* base
    policies, and area, this policy's at it. NoRuns with a single base policy."""
    policies = sorted(table["policy"].unique())
    if len(policies) < 2:
        raise NoRuns(f"panel {PANEL} is whole on base policy {policies[0]} alone: `make runs PANEL={PANEL}`")
    rows = []
    for (arm, steps), own in table.groupby(["arm", "steps"], sort=False):
        area = own.pivot(index="policy", columns="rate", values="area")
        for policy, chosen in chosen_elsewhere(area).items():
            rows.append((arm, steps, policy, chosen, float(area.loc[policy, chosen])))
    return pd.DataFrame(rows, columns=["arm", "steps", "policy", "chosen", "area"])


def gains(chosen: pd.DataFrame, reference: int) -> pd.DataFrame:
    """A row per arm, base policy and other number of steps: gain, the area at the chosen rates less that with
    `reference` steps. `chosen`: of `at_chosen_rates`."""
    wide = chosen.pivot(index=["arm", "policy"], columns="steps", values="area")
    less = wide.drop(columns=reference).sub(wide[reference], axis=0)
    return less.stack().rename("gain").reset_index()
