"""The noise floor: how much two runs differ when only the seed changed, or nothing at all."""

import numpy as np
import pandas as pd

from repro.settings import Settings, Statistics
from repro.stats.intervals import Interval3, t_intervals
from repro.stats.runs import compared, last_of


def noise_floor(evaluations: pd.DataFrame, settings: Settings, here: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row, from the baseline, the same arm trained again as `<baseline>-again`, and the other arms. `here`: the two
    as trained on one machine, where `evaluations` has the baseline from another.

    same_seeds, identical, largest    seeds that both have; whether each of their measured figures is the same;
                                      the largest |difference| in accuracy at any evaluation
    runs, sd                          final accuracy over all distinct seeds: their number, the standard deviation
    mean_difference, _low, _high      mean of the seeds that only `again` has, less the mean of the baseline's: two
                                      sets of runs of one method; Student's interval for independent samples
    arms, paired_sd                   the standard deviation of paired differences, the median over so many arms
    resolvable, resolvable_holm       the mean of that many paired differences at which a t-test just resolves it (so
                                      in half of the studies), alone and as the first of Holm's steps over all arms

    Without an arm `<baseline>-again` there are no same seeds, and no new ones.
    """
    again = f"{settings.baseline}-again"
    ours = [*compared(settings), again]
    curves = evaluations[evaluations["arm"].isin(ours)]
    if settings.baseline not in set(curves["arm"]):
        raise ValueError(f"noise floor: there is no run of {settings.baseline!r}; add the arm and train it")
    final = last_of(curves)["accuracy"]
    first = final[settings.baseline]
    second = final[again] if again in final else first[:0]
    new = second.drop(first.index, errors="ignore")
    return pd.DataFrame(
        [
            {
                **_same_seed_twice(curves if here is None else here, settings.baseline, again),
                **_two_means(first.to_numpy(), new.to_numpy(), settings.statistics.confidence),
                **_resolvable(final.drop(again, errors="ignore"), settings),
            }
        ]
    )


def late_rise(evaluations: pd.DataFrame, statistics: Statistics, share: float = 0.75) -> Interval3:
    """What one arm's accuracy gains after `share` of each run's FLOPs, linear between evaluations: mean, low, high."""
    rises = [
        run["accuracy"].iloc[-1] - np.interp(share * run["flops"].iloc[-1], run["flops"], run["accuracy"])
        for _, run in evaluations.sort_values("step").groupby("seed")
    ]
    mean, low, high = t_intervals(np.array(rises), statistics.confidence)
    return float(mean), float(low), float(high)


def _same_seed_twice(curves: pd.DataFrame, baseline: str, again: str) -> dict:
    first, second = (curves[curves["arm"] == arm].set_index(["seed", "step"]).sort_index() for arm in (baseline, again))
    both = set(first.index.get_level_values("seed")) & set(second.index.get_level_values("seed"))
    first, second = (table[table.index.isin(both, level="seed")] for table in (first, second))
    common = first.index.intersection(second.index)
    measured = [name for name in curves.columns if name not in ("arm", "seed", "step")]
    apart = (first.loc[common, "accuracy"] - second.loc[common, "accuracy"]).abs()
    return {
        "same_seeds": common.get_level_values("seed").nunique(),
        "identical": bool(len(common)) and first[measured].equals(second[measured]),
        "largest": float(apart.max()) if len(common) else float("nan"),
    }


def _two_means(first_S: np.ndarray, new_S: np.ndarray, confidence: float) -> dict:
    from scipy.stats import ttest_ind

    all_S = np.concatenate([first_S, new_S])
    row = {"runs": len(all_S), "sd": float(all_S.std(ddof=1)) if len(all_S) > 1 else float("nan")}
    mean = low = high = float("nan")
    if len(new_S):
        mean = float(new_S.mean() - first_S.mean())
    if len(new_S) > 1 and len(first_S) > 1:
        low, high = map(float, ttest_ind(new_S, first_S).confidence_interval(confidence))
    names = ("mean_difference", "mean_difference_low", "mean_difference_high")
    return {**row, "new_seeds": len(new_S), **dict(zip(names, (mean, low, high), strict=True))}


def _resolvable(final: pd.Series, settings: Settings) -> dict:
    from scipy.stats import t

    table = final.unstack("seed")
    differences_A_S = table.drop(index=settings.baseline).to_numpy() - table.loc[settings.baseline].to_numpy()
    n_arms, n_seeds = differences_A_S.shape
    row = {"arms": n_arms, "paired_sd": float("nan"), "resolvable": float("nan"), "resolvable_holm": float("nan")}
    if n_arms == 0 or n_seeds < 2:
        return row
    row["paired_sd"] = float(
        np.median(differences_A_S.std(axis=1, ddof=1))
    )  # the median: a collapsing arm says nothing about the others
    risk = 1 - settings.statistics.confidence
    for name, tests in {"resolvable": 1, "resolvable_holm": n_arms}.items():
        row[name] = float(t.ppf(1 - risk / (2 * tests), n_seeds - 1) * row["paired_sd"] / np.sqrt(n_seeds))
    return row
