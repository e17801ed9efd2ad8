"""Cost to reach a target: batches at half the cost save nothing if twice as many are needed.

How many steps an arm would need at a paper's scale is unknown; the ratio to the baseline is taken from the embedded
study, with other queries and another policy. Read it as an order of magnitude.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from repro.settings import Settings
from repro.stats.cost_ratios import cost_ratios
from repro.stats.runs import at_budgets, compared
from repro.verl.papers import SCALES, PaperScale


def steps_to_level(evaluations: pd.DataFrame, settings: Settings, level: float) -> pd.DataFrame:
    """arm, steps_ratio, _low, _high, _reached, _open: steps to `level` of the baseline's rise, over the baseline's.

    See repro.stats.cost_ratios; the cost is the number of steps. `evaluations`: of all runs.
    """
    arms = [arm for arm in compared(settings) if arm in set(evaluations["arm"])]
    full = at_budgets(evaluations[evaluations["arm"].isin(arms)])
    tables = [
        full.pivot(index=["arm", "seed"], columns="share", values=name).sort_index() for name in ("step", "accuracy")
    ]
    steps_A_S_E, accuracy_A_S_E = (np.stack([table.loc[arm].to_numpy(float) for arm in arms]) for table in tables)
    base, confidence = arms.index(settings.baseline), settings.statistics.confidence
    ratios = cost_ratios(steps_A_S_E, accuracy_A_S_E, base, [level], confidence)[level]
    return pd.DataFrame({"arm": arms, **{f"steps_ratio{end}": values for end, values in ratios.items()}})


def to_target(plan: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """`plan` (with hours_ratio, see repro.experiments.planner.plan.relative) joined with `steps`, and target_ratio*:
    hours to the target relative to the baseline's, if the ratio of steps were that of the embedded study, and whether
    it is reached and open as that is; NaN where the study has none."""
    joined = plan.merge(steps, on="arm", how="left")
    for end in ("", "_low", "_high"):
        joined[f"target_ratio{end}"] = joined["hours_ratio"] * joined[f"steps_ratio{end}"]
    return joined.assign(
        target_ratio_reached=joined["steps_ratio_reached"], target_ratio_open=joined["steps_ratio_open"]
    )


def papers_savings(plan: pd.DataFrame, scales: Mapping[str, PaperScale] = SCALES) -> pd.DataFrame:
    """The papers' savings next to the predictions for the same two arms, where `plan` (from `to_target`) has both:

    scale, arm, against, unit, benchmark, paper (the share of `unit` that is still spent), run (predicted, for equally
    many steps), target (predicted to the target, with the embedded study's ratio of steps), reached (whether `arm` got
    there; if not, `target` is a lower bound), where
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
