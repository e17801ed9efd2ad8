"""Cost to a target: a batch that costs less saves nothing if twice as many are needed.

The planner cannot know how many steps an arm would need at a paper's scale; it takes the ratio to the baseline from the
embedded study, on other queries and with another policy. Read it as an order of magnitude.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from repro.paper_scale import SCALES, PaperScale
from repro.settings import Settings
from repro.stats.efficiency import cost_ratios
from repro.stats.intervals import draws
from repro.stats.runs import carried_forward, compared


def steps_to_level(evaluations: pd.DataFrame, settings: Settings, level: float) -> pd.DataFrame:
    """arm, steps_ratio, _low, _high, _reached, _open: steps to `level` of the baseline's rise, relative to its own.

    As repro.stats.efficiency.cost_ratios, with steps as the cost. `evaluations`: of all runs.
    """
    arms = [arm for arm in compared(settings) if arm in set(evaluations["arm"])]
    full = carried_forward(evaluations[evaluations["arm"].isin(arms)])
    table = full.pivot(index=["arm", "seed"], columns="step", values="accuracy").sort_index()
    accuracy_A_S_E = np.stack([table.loc[arm].to_numpy(float) for arm in arms])
    draws_B_S = draws(accuracy_A_S_E.shape[1], settings.statistics)
    accuracies_A_B_E = accuracy_A_S_E[:, draws_B_S].mean(2)
    steps_A_B_E = np.broadcast_to(table.columns.to_numpy(float), accuracies_A_B_E.shape)
    base, n_seeds = arms.index(settings.baseline), accuracy_A_S_E.shape[1]
    ratios = cost_ratios(steps_A_B_E, accuracies_A_B_E, base, level, n_seeds, settings.statistics)
    return pd.DataFrame({"arm": arms, **{f"steps_ratio{end}": values for end, values in ratios.items()}})


def to_target(plan: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """`plan` with hours_ratio (repro.experiments.planner.plan.relative), joined with `steps` and with target_ratio*:
    hours to the target relative to the baseline's, were the ratio of steps that of the embedded study; NaN where it
    has none."""
    joined = plan.merge(steps, on="arm", how="left")
    for end in ("", "_low", "_high"):
        joined[f"target_ratio{end}"] = joined["hours_ratio"] * joined[f"steps_ratio{end}"]
    return joined


def papers_savings(plan: pd.DataFrame, scales: Mapping[str, PaperScale] = SCALES) -> pd.DataFrame:
    """The papers' savings beside the prediction for the same pair of arms, where `plan` (`to_target`'s) has both:

    scale, arm, against, unit, benchmark, paper (the share of `unit` that is still spent), run (predicted, for as many
    steps), target (to the target, with the embedded study's ratio of steps), reached (whether `arm` got there; else
    `target` is a lower bound), where
    """
    of_arm, rows = plan.set_index(["scale", "arm"]), []
    for name, scale in scales.items():
        for saving in scale.savings:
            if not {(name, saving.arm), (name, saving.against)} <= set(of_arm.index):
                continue
            arm, against = of_arm.loc[(name, saving.arm)], of_arm.loc[(name, saving.against)]
            run = arm[saving.unit] / against[saving.unit]
            rows.append(
                {
                    "scale": name,
                    **saving.model_dump(include={"arm", "against", "unit", "benchmark"}),
                    "paper": saving.share,
                    "run": run,
                    "target": run * arm["steps_ratio"] / against["steps_ratio"],
                    "reached": bool(arm["steps_ratio_reached"]),
                    "where": saving.stated.why,
                }
            )
    return pd.DataFrame(rows)
