"""Does a profile of the base policy still hold for the policy that is trained? Compared with resampling alone.

A profile has K samples per query; s of them succeed, p̂ = s/K. From p̂, sGPO classes a query as trivial, learnable or
unsolvable and sizes its group (repro.methods.sgpo_rule). Two profiles of one policy differ by chance; drift is what
differs by more than that. Axes: Q queries, E evaluations.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from repro.engine.snapshots import BASE
from repro.methods.plans.sgpo import sgpo
from repro.methods.sgpo_rule import CLASSES, LEARNABLE, Rule, classes
from repro.settings import Arm, Settings, Statistics
from repro.stats.correlation import spearman
from repro.stats.intervals import over_seeds
from repro.stats.pass_at_k import pass_at_k

CHECKPOINT = ["arm", "seed", "step"]
CHANGES = ("size_changed", "doublings", "class_changed", "rose", "fell", "dropped_wrongly", "kept_wrongly")
LABELS = {
    "spearman": "rank correlation",
    "corrected": "rank correlation, corrected for noise",
    "class_changed": "in another class",
    "size_changed": "with another group size",
    "doublings": "doublings of the group size, up or down",
    "dropped_wrongly": "dropped or sub-sampled, now learnable",
    "kept_wrongly": "kept, now always or never solved",
    "rose": "from below ½ to above",
    "fell": "from above ½ to below",
}
REPROFILED = ("equal_steps", "equal_compute", "mean_compute", "flops", "profile_share")


def rule_of(settings: Settings) -> Rule:
    """That of the first of drift.arms whose plan is sGPO's; the plan's defaults if there is none."""
    plans = [settings.arm(name).plan for name in settings.drift.arms]
    return Rule.of(next((given for plan, given in plans if plan == sgpo.__name__), {}))


def compare(first_Q: np.ndarray, second_Q: np.ndarray, rule: Rule, samples: int | None = None) -> dict[str, float]:
    """Two profiles, as success rates in `samples` of each query (`Rule.sizes`): `spearman`, and as shares of queries

    size_changed       another group size; doublings: mean |log₂| of the ratio of the sizes
    class_changed      another class
    rose, fell         from below to above p̂ = ½; from above to below
    dropped_wrongly    first trivial or unsolvable, now learnable
    kept_wrongly       first learnable, now trivial or unsolvable
    """
    sizes, classed, sides = (
        [function(rate_Q) for rate_Q in (first_Q, second_Q)]
        for function in (partial(rule.sizes, samples=samples), classes, lambda rate_Q: np.sign(rate_Q - 0.5))
    )
    learnable, now_learnable = (class_Q == CLASSES.index(LEARNABLE) for class_Q in classed)
    shares = {
        "size_changed": sizes[0] != sizes[1],
        "doublings": np.abs(np.log2(sizes[1] / sizes[0])),
        "class_changed": classed[0] != classed[1],
        "rose": (sides[0] < 0) & (sides[1] > 0),
        "fell": (sides[0] > 0) & (sides[1] < 0),
        "dropped_wrongly": ~learnable & now_learnable,
        "kept_wrongly": learnable & ~now_learnable,
    }
    return {"spearman": spearman(first_Q, second_Q), **{name: float(np.mean(part)) for name, part in shares.items()}}


def summarise(profiles: pd.DataFrame, rule: Rule) -> pd.DataFrame:
    """One row per checkpoint, from repro.experiments.drift.measure.measure_drift. Columns: arm, seed, step, and

    success            mean success rate
    `compare`'s        of the initial profile with a new one, mean over the two new ones; for the base policy, which is
                       untrained, that is the ceiling (spearman) and the effect of resampling alone (shares)
    reliability        spearman of the two new profiles with each other
    signal_<class>     of groups of K rollouts on the queries that the initial profile put in the class, the share whose
                       rewards differ, without bias from the 2K new samples
    <share>_excess     less that of the base policy with the same seed
    corrected          spearman / √(ceiling · reliability), Spearman's (1904) correction for attenuation: an estimate of
                       the correlation without sampling noise (approximate for ranks; noise can lift it above 1)
    """
    samples, rows = int(profiles["samples"].iloc[0]), []
    for key, part in profiles.groupby(CHECKPOINT, sort=False):
        initial_Q, after_Q, again_Q = (part[name].to_numpy() for name in ("initial", "after", "again"))
        pair = pd.DataFrame(
            [compare(initial_Q / samples, new_Q / samples, rule, samples) for new_Q in (after_Q, again_Q)]
        )
        row = dict(zip(CHECKPOINT, key, strict=True)) | {"success": (after_Q + again_Q).mean() / (2 * samples)}
        row |= pair.mean(skipna=False).to_dict() | {"reliability": spearman(after_Q, again_Q)}
        rows.append(row | _signals(classes(initial_Q / samples), after_Q + again_Q, samples))
    summary = pd.DataFrame(rows)
    base = summary[summary["arm"] == BASE].set_index("seed").loc[summary["seed"]].reset_index(drop=True)
    summary[[f"{name}_excess" for name in CHANGES]] = summary[list(CHANGES)] - base[list(CHANGES)]
    noise = base["spearman"] * summary["reliability"]
    summary["corrected"] = summary["spearman"] / np.sqrt(noise.where(noise > 0))
    return summary


def _signals(classes_Q: np.ndarray, successes_Q: np.ndarray, size: int) -> dict[str, float]:
    """Of groups of `size`, from 2·size samples: 1 − P(all right) − P(all wrong), each a share of subsets."""
    samples = 2 * size
    some_right_Q = pass_at_k(successes_Q, samples, size)
    signal_Q = some_right_Q + pass_at_k(samples - successes_Q, samples, size) - 1
    parts = {name: signal_Q[classes_Q == index] for index, name in enumerate(CLASSES)}
    return {f"signal_{name}": float(part_Q.mean()) if part_Q.size else float("nan") for name, part_Q in parts.items()}


def transitions(profiles: pd.DataFrame) -> pd.DataFrame:
    """One row per checkpoint and pair of classes: arm, seed, step, before, after, share of all queries, chance (of
    `after` given `before`; NaN if no query was in that class), mean over the two new profiles."""
    samples, rows = int(profiles["samples"].iloc[0]), []
    for key, part in profiles.groupby(CHECKPOINT, sort=False):
        before_Q, after_Q, again_Q = (classes(part[name] / samples) for name in ("initial", "after", "again"))
        counts = np.zeros((len(CLASSES), len(CLASSES)))
        for now_Q in (after_Q, again_Q):
            np.add.at(counts, (before_Q, now_Q), 0.5)
        for i, before in enumerate(CLASSES):
            for j, after in enumerate(CLASSES):
                chance = counts[i, j] / counts[i].sum() if counts[i].any() else float("nan")
                row = dict(zip(CHECKPOINT, key, strict=True)) | {"before": before, "after": after}
                rows.append(row | {"share": counts[i, j] / len(part), "chance": chance})
    return pd.DataFrame(rows)


def by_initial(profiles: pd.DataFrame) -> pd.DataFrame:
    """Mean success rate now of the queries with each initial p̂, one row per checkpoint and p̂: arm, seed, step,
    initial (p̂), queries, success. For the base policy it shows how far p̂ = 0 and p̂ = 1 were luck."""
    now = (profiles["after"] + profiles["again"]) / (2 * profiles["samples"])
    rates = profiles.assign(initial=profiles["initial"] / profiles["samples"], success=now)
    groups = rates.groupby([*CHECKPOINT, "initial"], sort=False)["success"]
    return (
        groups.agg(queries="size", success="mean")
        .reset_index()
        .sort_values([*CHECKPOINT, "initial"], ignore_index=True)
    )


def at_the_end(summary: pd.DataFrame, statistics: Statistics) -> pd.DataFrame:
    """The last arm's last checkpoint against resampling: one row per measure of LABELS (index), means over seeds.

    trained, resampled, excess, each with _low and _high: agreement of the initial profile with a profile of the trained
    policy, with a second one of the base policy, and their difference, paired by seed. `summary`: `summarise`'s.
    """
    arm, step = summary["arm"].iloc[-1], summary["step"].max()
    parts = {
        "trained": summary[(summary["arm"] == arm) & (summary["step"] == step)],
        "resampled": summary[summary["arm"] == BASE],
    }
    by_seed = {name: part.set_index("seed")[list(LABELS)] for name, part in parts.items()}
    by_seed["excess"] = by_seed["trained"] - by_seed["resampled"]
    wide = pd.concat(by_seed, names=["profile", "seed"]).melt(var_name="measure", ignore_index=False).reset_index()
    wide = wide.pivot(index=["measure", "seed"], columns="profile", values="value")[list(by_seed)].reset_index()
    return over_seeds(wide, "measure", statistics).loc[list(LABELS)]


def profiled_once_and_again(settings: Settings) -> tuple[str | None, list[str]]:
    """The first of drift.arms that has a profile, None if none has; and the arms that differ from it only in profiling
    again."""
    once = next((name for name in settings.drift.arms if settings.arm(name).profile), None)
    if once is None:
        return None, []

    def method(arm: Arm) -> dict:
        return arm.model_dump(exclude={"title", "about", "group", "profile"})

    wanted = method(settings.arm(once))
    others = {name: settings.arm(name) for name in settings.all_arms}
    return once, [name for name, arm in others.items() if arm.profile and arm.profile.again and method(arm) == wanted]


def reprofiled(evaluations: pd.DataFrame, once: str, again: Sequence[str]) -> pd.DataFrame:
    """Arms that re-profile against the arm `once`, which does not, with the same seed: one row per arm and seed.

    equal_steps      final accuracy less that of `once` after as many steps
    equal_compute    the same at the most FLOPs that both have spent, re-profiling charged, linear between evaluations
    mean_compute     the same, mean over all FLOPs up to there
    flops            the arm's total, relative to `once`
    profile_share    share of the arm's FLOPs that is profiling

    `evaluations`: arm, seed, step, accuracy, flops, flops_profile. ValueError if an arm lacks a seed of `once`.
    """
    curves = {key: run.sort_values("step") for key, run in evaluations.groupby(["arm", "seed"])}
    rows = []
    for arm in again:
        for seed in sorted(seed for name, seed in curves if name == once):
            if (arm, seed) not in curves:
                raise ValueError(f"drift: {arm} has no run with seed {seed}, {once} has; train it with the same seeds")
            pair = curves[arm, seed], curves[once, seed]
            last = min(run["step"].max() for run in pair)
            at_step = [float(np.interp(last, run["step"], run["accuracy"])) for run in pair]
            totals = [run["flops"].iloc[-1] for run in pair]
            at_end, mean = zip(*(_accuracy_up_to(run, min(totals)) for run in pair), strict=True)
            row = {
                "equal_steps": at_step[0] - at_step[1],
                "equal_compute": at_end[0] - at_end[1],
                "mean_compute": mean[0] - mean[1],
                "flops": totals[0] / totals[1],
                "profile_share": pair[0]["flops_profile"].iloc[-1] / totals[0],
            }
            rows.append({"arm": arm, "seed": seed} | row)
    return pd.DataFrame(rows, columns=["arm", "seed", *REPROFILED])


def _accuracy_up_to(run: pd.DataFrame, spent: float) -> tuple[float, float]:
    """(accuracy at `spent` FLOPs, mean accuracy over the FLOPs up to there) of a curve linear between evaluations and
    constant before the first."""
    flops_E, accuracy_E = run["flops"].to_numpy(float), run["accuracy"].to_numpy(float)
    inside_E = flops_E[(flops_E > 0) & (flops_E < spent)]
    grid_E = np.concatenate([[0.0], inside_E, [spent]])
    curve_E = np.interp(grid_E, flops_E, accuracy_E)
    return float(curve_E[-1]), float(np.trapezoid(curve_E, grid_E) / spent)
