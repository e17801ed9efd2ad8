"""Does a profile of the base policy stay true of the policy that is trained? Held against what resampling alone does.

A profile has K samples a query; s of them succeed, p̂ = s/K. By it sGPO files a query as trivial (p̂ = 1: dropped),
learnable, or unsolvable (p̂ = 0: sub-sampled), and gives it a group of clip(⌈1/p̂⌉). Two profiles of one policy differ by
chance; only what differs more than that has drifted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature

import numpy as np
import pandas as pd

from repro.experiments.fidelity.probe import BASE
from repro.experiments.profile.describe import CLASSES, LEARNABLE, classes
from repro.experiments.profile.sensitivity import spearman
from repro.methods.group_sizes.rule import rule_size
from repro.methods.plans.sgpo import sgpo
from repro.settings import Arm, Settings, Statistics
from repro.stats.intervals import mean_intervals
from repro.stats.pass_at_k import pass_at_k

CHANGES = ("size_changed", "doublings", "class_changed", "rose", "fell", "dropped_wrongly", "kept_wrongly")
CHECKPOINT = ["arm", "seed", "step"]
REPROFILED = ("equal_steps", "equal_compute", "mean_compute", "flops", "profile_share")


@dataclass(frozen=True)
class Rule:
    """sGPO's classes and group sizes for K = `samples`; sizes from `smallest` to `largest`."""

    samples: int
    smallest: int
    largest: int

    @classmethod
    def of(cls, settings: Settings) -> "Rule":
        """With drift.samples, and the sizes of the first of drift.arms that has sGPO's plan, or of that plan itself."""
        given = [arm.plan[1] for arm in map(settings.arm, settings.drift.arms) if arm.plan[0] == sgpo.__name__]
        known = signature(sgpo).parameters
        sizes = {name: (given or [{}])[0].get(name, known[name].default) for name in ("smallest", "largest")}
        return cls(settings.drift.samples, **sizes)

    def classes(self, successes_Q: np.ndarray) -> np.ndarray:
        """Places in CLASSES."""
        return classes(np.asarray(successes_Q) / self.samples)

    def sizes(self, successes_Q: np.ndarray) -> np.ndarray:
        """clip(⌈1/p̂⌉), of every query, those filed as trivial too; p̂ = 0 has the largest."""
        return rule_size(np.asarray(successes_Q) / self.samples, self.smallest, self.largest)


def compare(first_Q: np.ndarray, second_Q: np.ndarray, rule: Rule) -> dict[str, float]:
    """Two profiles, by successes: `spearman`, and as shares of the queries

    size_changed       another group size; doublings: mean |log₂| of the ratio of the sizes
    class_changed      another class
    rose, fell         from below to above p̂ = ½; from above to below
    dropped_wrongly    filed as trivial or unsolvable at first, learnable now
    kept_wrongly       filed as learnable at first, trivial or unsolvable now
    """
    sizes, filed, sides = (
        [of(successes_Q) for successes_Q in (first_Q, second_Q)]
        for of in (rule.sizes, rule.classes, lambda successes_Q: np.sign(2 * successes_Q - rule.samples))
    )
    at_first, now = (classes_Q == CLASSES.index(LEARNABLE) for classes_Q in filed)
    shares = {
        "size_changed": sizes[0] != sizes[1],
        "doublings": np.abs(np.log2(sizes[1] / sizes[0])),
        "class_changed": filed[0] != filed[1],
        "rose": (sides[0] < 0) & (sides[1] > 0),
        "fell": (sides[0] > 0) & (sides[1] < 0),
        "dropped_wrongly": ~at_first & now,
        "kept_wrongly": at_first & ~now,
    }
    return {"spearman": spearman(first_Q, second_Q), **{name: float(np.mean(part)) for name, part in shares.items()}}


def summarise(profiles: pd.DataFrame, rule: Rule) -> pd.DataFrame:
    """One row per checkpoint, from the table of repro.experiments.drift.measure.measure_drift. Columns: arm, seed,
    step, and

    success            mean success rate
    `compare`'s        of the initial profile with a new one, mean over the two new ones; for the base policy, where
                       nothing has been trained, that is the ceiling (spearman) and what resampling alone does (shares)
    <share>_excess     less that of the base policy with the same seed
    reliability        spearman of the two new profiles with each other
    corrected          spearman / √(ceiling · reliability), Spearman's (1904) correction for attenuation: what the
                       correlation would be without sampling noise (approximate for ranks; noise can lift it above 1)
    signal_<class>     of groups of K rollouts on the queries that the initial profile filed there, the share whose
                       rewards differ, without bias from the 2K new samples
    """
    rows = []
    for key, own in profiles.groupby(CHECKPOINT, sort=False):
        initial_Q, after_Q, again_Q = (own[name].to_numpy() for name in ("initial", "after", "again"))
        pair = pd.DataFrame([compare(initial_Q, new_Q, rule) for new_Q in (after_Q, again_Q)])
        row = dict(zip(CHECKPOINT, key, strict=True)) | {"success": (after_Q + again_Q).mean() / (2 * rule.samples)}
        row |= pair.mean(skipna=False).to_dict() | {"reliability": spearman(after_Q, again_Q)}
        rows.append(row | _signals(rule.classes(initial_Q), after_Q + again_Q, rule.samples))
    found = pd.DataFrame(rows)
    base = found[found["arm"] == BASE].set_index("seed").loc[found["seed"]].reset_index(drop=True)
    found[[f"{name}_excess" for name in CHANGES]] = found[list(CHANGES)] - base[list(CHANGES)]
    noise = base["spearman"] * found["reliability"]
    found["corrected"] = found["spearman"] / np.sqrt(noise.where(noise > 0))
    return found


def _signals(classes_Q: np.ndarray, successes_Q: np.ndarray, size: int) -> dict[str, float]:
    """Of groups of `size`, from 2·size samples: 1 − P(all right) − P(all wrong), each a share of subsets."""
    samples = 2 * size
    some_right_Q = pass_at_k(successes_Q, samples, size)
    signal_Q = some_right_Q + pass_at_k(samples - successes_Q, samples, size) - 1
    own = [signal_Q[classes_Q == place] for place in range(len(CLASSES))]
    return {
        f"signal_{name}": float(part_Q.mean()) if part_Q.size else float("nan")
        for name, part_Q in zip(CLASSES, own, strict=True)
    }


def over_seeds(summary: pd.DataFrame, statistics: Statistics) -> pd.DataFrame:
    """Mean over seeds of every column of `summarise` with _low and _high; index (arm, step), the base policy first."""
    measures = [name for name in summary if name not in CHECKPOINT]
    rows = {}
    for key, own in summary.groupby(["arm", "step"], sort=False):
        found = mean_intervals({name: own[name].to_numpy(float) for name in measures}, statistics)
        rows[key] = {
            f"{name}{end}": value
            for name, interval in found.items()
            for end, value in zip(("", "_low", "_high"), interval, strict=True)
        }
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index = pd.MultiIndex.from_tuples(table.index, names=["arm", "step"])
    return table


def transitions(profiles: pd.DataFrame, rule: Rule) -> pd.DataFrame:
    """One row per checkpoint and pair of classes: arm, seed, step, before, after, share of all queries, chance (of
    `after` given `before`; NaN where none was filed there), mean over the two new profiles."""
    rows = []
    for key, own in profiles.groupby(CHECKPOINT, sort=False):
        before_Q = rule.classes(own["initial"].to_numpy())
        counts = np.zeros((len(CLASSES), len(CLASSES)))
        for name in ("after", "again"):
            np.add.at(counts, (before_Q, rule.classes(own[name].to_numpy())), 0.5)
        for i, before in enumerate(CLASSES):
            for j, after in enumerate(CLASSES):
                filed = counts[i].sum()
                chance = counts[i, j] / filed if filed else float("nan")
                where = dict(zip(CHECKPOINT, key, strict=True)) | {"before": before, "after": after}
                rows.append(where | {"share": counts[i, j] / len(own), "chance": chance})
    return pd.DataFrame(rows)


def by_initial(profiles: pd.DataFrame) -> pd.DataFrame:
    """Mean success rate now of the queries with each p̂ at first, one row per checkpoint and p̂: arm, seed, step,
    initial (p̂), queries, success. For the base policy it shows how far p̂ = 0 and p̂ = 1 were luck."""
    now = (profiles["after"] + profiles["again"]) / (2 * profiles["samples"])
    rates = profiles.assign(initial=profiles["initial"] / profiles["samples"], success=now)
    groups = rates.groupby([*CHECKPOINT, "initial"], sort=False)["success"]
    found = groups.agg(queries="size", success="mean").reset_index()
    return found.sort_values([*CHECKPOINT, "initial"], ignore_index=True)


def profiled_once_and_again(settings: Settings) -> tuple[str | None, list[str]]:
    """The first of drift.arms that has a profile, None if none has; the arms that are it but for profiling again."""
    once = next((name for name in settings.drift.arms if settings.arm(name).profile), None)
    if once is None:
        return None, []
    method = settings.arm(once)

    def same(arm: Arm) -> bool:
        own = arm.model_dump(exclude={"title", "about", "group", "profile"})
        return own == method.model_dump(exclude={"title", "about", "group", "profile"})

    again = [name for name, arm in settings.arms.items() if arm.profile and arm.profile.again and same(arm)]
    return once, again


def reprofiled(evaluations: pd.DataFrame, once: str, again: Sequence[str]) -> pd.DataFrame:
    """What arms that re-profile have over the arm `once`, which does not, with the same seed: one row per arm and seed.

    equal_steps      accuracy at the end less that of `once` after as many steps
    equal_compute    the same at the most FLOPs that both have spent, re-profiling charged, between evaluations linear
    mean_compute     the same, mean over all FLOPs up to there
    flops            all that the arm spent, relative to `once`
    profile_share    of the arm's own FLOPs, profiling

    `evaluations`: arm, seed, step, accuracy, flops, flops_profile. ValueError if an arm lacks a seed of `once`.
    """
    curves = {key: run.sort_values("step") for key, run in evaluations.groupby(["arm", "seed"])}
    rows = []
    for arm in again:
        for seed in sorted(seed for name, seed in curves if name == once):
            if (arm, seed) not in curves:
                raise ValueError(f"drift: {arm} has no run with seed {seed}, {once} has; train it with the same seeds")
            own, other = curves[arm, seed], curves[once, seed]
            last = min(own["step"].max(), other["step"].max())
            at_step = [float(run.loc[run["step"] == last, "accuracy"].iloc[0]) for run in (own, other)]
            spent = min(own["flops"].iloc[-1], other["flops"].iloc[-1])
            at_end, mean = zip(*(_accuracy_up_to(run, spent) for run in (own, other)), strict=True)
            rows.append(
                {
                    "arm": arm,
                    "seed": seed,
                    "equal_steps": at_step[0] - at_step[1],
                    "equal_compute": at_end[0] - at_end[1],
                    "mean_compute": mean[0] - mean[1],
                    "flops": own["flops"].iloc[-1] / other["flops"].iloc[-1],
                    "profile_share": own["flops_profile"].iloc[-1] / own["flops"].iloc[-1],
                }
            )
    return pd.DataFrame(rows, columns=["arm", "seed", *REPROFILED])


def _accuracy_up_to(run: pd.DataFrame, spent: float) -> tuple[float, float]:
    """(accuracy once `spent` FLOPs are, mean accuracy over the FLOPs up to there) of a curve linear between points;
    before its first evaluation it stands where it starts."""
    flops_E, accuracy_E = run["flops"].to_numpy(float), run["accuracy"].to_numpy(float)
    inside_E = flops_E[(flops_E > 0) & (flops_E < spent)]
    grid_E = np.concatenate([[0.0], inside_E, [spent]])
    curve_E = np.interp(grid_E, flops_E, accuracy_E)
    return float(curve_E[-1]), float(np.trapezoid(curve_E, grid_E) / spent)
