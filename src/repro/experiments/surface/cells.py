"""sGPO with groups of several sizes for queries that their profile never solved, or without any, by weighting."""

import numpy as np
import pandas as pd

from repro.settings import Statistics
from repro.stats import panels
from repro.stats.nested import nested
from repro.stats.outcomes import for_the_same_flops

PANELS = ("surface", "surface-without")
UNSOLVABLE, WEIGHTING = "arms.sgpo.plan.sgpo.unsolvable", "arms.sgpo.aggregation"  # what the panels vary
WITHOUT = 0  # the group of queries that are left out
MEASURES = {"steps": "after as many steps", "flops": "for the same FLOPs"}
KEYS = ["policy", "group", "weighting", "seed"]


def load() -> pd.DataFrame:
    """A row per run: policy, group (rollouts of a query that its profile never solved; WITHOUT: none is kept),
    weighting, seed; its accuracy by each of MEASURES, profile charged; gflop, what it spent in all; queries,
    rollouts and trained_tokens (computed).

    The same FLOPs: what the most economical run of the base policy spends in all, linear between evaluations. Of base
    policies on which every run is made; NoRuns where there is none.
    """
    runs = panels.whole(panels.made(PANELS), ["policy"])
    group, weighting = panels.varied(runs, UNSOLVABLE, int, WITHOUT), panels.varied(runs, WEIGHTING, str)
    runs = runs[["run", "policy", "seed"]].assign(group=group, weighting=weighting)
    curves = pd.concat([panels.load("curves", panel) for panel in PANELS], ignore_index=True)
    curves = curves.merge(runs[["run", "policy"]], on="run").sort_values(["run", "step"], kind="stable")
    last = curves.groupby("run").last()
    spent = for_the_same_flops(curves, ["policy"])
    ends = last[["queries", "rollouts", "trained_tokens"]].assign(
        steps=last["accuracy"], flops=spent, gflop=last["flops"] / 1e9
    )
    return runs.join(ends, on="run").sort_values(KEYS, kind="stable", ignore_index=True)


def effects(table: pd.DataFrame, reference: int, weightings: tuple[str, str], statistics: Statistics) -> pd.DataFrame:
    """A row per measure and contrast, over base policies and seeds (repro.stats.nested), uncorrected:

    factor   "group": another group less `reference`, mean over weightings; "weighting": the second of `weightings` less
             the first, mean over groups
    level    the other group; the second weighting
    difference, difference_low, difference_high, by_policy
    """
    parts = []
    for measure in MEASURES:
        wide = table.pivot(index=["policy", "seed"], columns=["group", "weighting"], values=measure)
        by_group, by_weighting = (wide.T.groupby(level).mean().T for level in ("group", "weighting"))
        contrasts = {
            ("group", group): by_group[group] - by_group[reference] for group in by_group if group != reference
        }
        contrasts["weighting", weightings[1]] = by_weighting[weightings[1]] - by_weighting[weightings[0]]
        fit = nested(np.array([_by_policy(contrast) for contrast in contrasts.values()]))
        low, high = fit.interval(statistics.confidence)
        named = pd.DataFrame(list(contrasts), columns=["factor", "level"]).assign(measure=measure)
        ends = {"difference": fit.estimate_A, "difference_low": low, "difference_high": high}
        parts.append(named.assign(**ends, by_policy=list(map(list, fit.own_A_P))))
    return pd.concat(parts, ignore_index=True)


def _by_policy(contrast: pd.Series) -> np.ndarray:
    """contrast_P_S."""
    return contrast.unstack("seed").to_numpy()
