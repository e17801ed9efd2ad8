"""Arms compared over base policies and seeds: by any measure, for any cost at any price, along any factor. What a study
of a panel takes:

    runs = compare.load(["mixes"], {"mix": ("mix", str)}, where=["mix", "policy"])
    curves = compare.rows("curves", runs)
    table = runs.join(compare.at_ends(curves, ["mix", "policy"]), on="run")
    compare.differences(table, ["steps", "flops"], ["zvf", "sgpo"], "grpo", 0.95, within="mix")

Base policies are random and seeds nested in them (repro.stats.nested). A further factor is crossed with both: `within`
compares at each of its levels, and without it runs are averaged over the levels, so that a mean over mixes is a mean of
each base policy, and its interval has as many places as there are base policies.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from repro.settings import weight_at
from repro.stats import panels
from repro.stats.answers import told
from repro.stats.nested import nested
from repro.stats.outcomes import at_shares, for_the_same_flops, outcomes, paired
from repro.stats.pass_at_k import pass_at_k
from repro.stats.saturation import scaled

KEYS = ["policy", "arm", "seed"]
Factor = tuple[str, Callable[[Any], Any]] | tuple[str, Callable[[Any], Any], Any]


class Less(NamedTuple):
    """Levels of a factor, each less one of it, averaged over all other factors but base policy and seed."""

    levels: Sequence
    reference: Any
    factor: str = "arm"


def load(
    names: Sequence[str], factors: Mapping[str, Factor] | None = None, where: Sequence[str] = ("policy",)
) -> pd.DataFrame:
    """A row per run of the panels `names`: run, panel, policy, arm, seed, and each of `factors`, {column: (key of
    params.yaml, type)} or (…, what runs have that do not vary it).

    Of places, values of the columns `where`, on which every run is made, and base policies that have all of these
    places: the others are still being made. NoRuns where there is none; Unreadable names a run that does not say what
    it varied."""
    runs = panels.made(names, [*KEYS, "varied"] if factors else KEYS)
    runs = runs.assign(**{name: panels.varied(runs, *of) for name, of in (factors or {}).items()})
    runs = panels.whole(runs, list(where))
    if list(where) != ["policy"]:
        runs = panels.whole(runs, ["policy"])
    return runs[["run", "panel", *KEYS, *(factors or {})]]


def shared(names: Sequence[str], baseline: str) -> pd.DataFrame:
    """As `load`, of the arms that each of the panels has, on the seeds that all of these arms have there. NoRuns where
    a panel has fewer than two such seeds, or lacks the baseline."""
    runs = pd.concat([panels.made([name], KEYS) for name in names], ignore_index=True)
    arms = set.intersection(*(set(own["arm"]) for _, own in runs.groupby("panel")))
    runs = runs[runs["arm"].isin(arms)]
    runs = runs[runs.groupby(["panel", "seed"])["arm"].transform("nunique") == len(arms)]
    for name in names:
        if baseline not in arms or runs.loc[runs["panel"] == name, "seed"].nunique() < 2:
            cure = f"`make runs PANEL={name}`"
            raise panels.NoRuns(f"panel {name} has not two seeds of every arm and {baseline}: {cure}")
    return runs[["run", "panel", *KEYS]].reset_index(drop=True)


def rows(table: str, runs: pd.DataFrame) -> pd.DataFrame:
    """The rows that `runs` have in a table of their panels (repro.stats.panels), in the order of `runs`, with its
    columns in front."""
    parts = [panels.load(table, panel) for panel in runs["panel"].unique()]
    return runs.merge(pd.concat(parts, ignore_index=True), on="run")


def at_ends(curves: pd.DataFrame, where: Sequence[str] = ("policy",)) -> pd.DataFrame:
    """A row per run (the index): its accuracy

    steps   after its last step
    flops   when the most economical run of its place, the columns `where`, has ended; linear between evaluations
    """
    last = curves.sort_values(["run", "step"], kind="stable").groupby("run")["accuracy"].last()
    return pd.DataFrame({"steps": last, "flops": for_the_same_flops(curves, where)})


def ended(runs: pd.DataFrame, ks: Sequence[int]) -> pd.DataFrame:
    """`runs` with what they reached after their last step, as far as it was measured: accuracy, greedy, pass@k of `ks`;
    of the harder split "harder", "harder greedy", "harder pass@4"."""
    last = rows("curves", runs).sort_values("step", kind="stable").groupby("run").last()
    found = last[[name for name in ("accuracy", "greedy", "harder", "harder_greedy") if name in last]]
    found = found.rename(columns={"harder_greedy": "harder greedy"})
    for table, before in (("questions", ""), ("harder", "harder ")):
        if len(asked := rows(table, runs)):
            found = found.join(pass_at(asked, ks).rename(columns={k: f"{before}pass@{k}" for k in ks}))
    return runs.join(found, on="run")


def less_at_the_cheaper(curves: pd.DataFrame, baseline: str) -> pd.Series:
    """Accuracy of each run (the index) less that of the baseline's run with its base policy and seed, when the cheaper
    of the two has ended, linear between evaluations; 0 for the baseline."""
    ordered = curves.sort_values(["run", "step"], kind="stable")
    of = {run: own[["flops", "accuracy"]].to_numpy().T for run, own in ordered.groupby("run")}
    runs = curves.drop_duplicates("run")
    first = runs[runs["arm"] == baseline].set_index(["policy", "seed"])["run"]
    less = {}
    for row in runs.itertuples():
        pair = of[row.run], of[first[row.policy, row.seed]]
        spent = min(curve[0, -1] for curve in pair)
        own, other = (np.interp(spent, *curve) for curve in pair)
        less[row.run] = own - other
    return pd.Series(less)


def pass_at(asked: pd.DataFrame, ks: Sequence[int], by: Sequence[str] = ("run",)) -> pd.DataFrame:
    """pass@k (columns) of each of `by` (the index), mean over queries, without bias, of those of `ks` for which there
    are samples. `asked`: rows of `questions` or `temperatures`."""
    rates = {
        k: pass_at_k(asked["successes"].to_numpy(), asked["samples"].to_numpy(), k)
        for k in ks
        if k <= asked["samples"].min()
    }
    table = asked[list(by)].assign(**{str(k): rate for k, rate in rates.items()})
    return table.groupby(list(by), sort=False)[list(map(str, rates))].mean().set_axis(list(rates), axis=1)


def weight_of(curves: pd.DataFrame, baseline: str, share: float) -> float:
    """The weight w of a generation FLOP at which generating is `share` of the baseline's bill."""
    spent = _bills(curves, baseline)[["flops_generate", "flops"]].mean()
    return weight_at(share, spent["flops_generate"], spent["flops"] - spent["flops_generate"])


def priced(curves: pd.DataFrame, baseline: str, weight: float) -> pd.DataFrame:
    """`curves` with `cost`, w·flops_generate + flops_score + flops_train, and `share`, of the budget: what the
    baseline has paid, at this price, when it has spent its base policy's budget of FLOPs, mean over its seeds."""
    cost = weight * curves["flops_generate"] + curves["flops_score"] + curves["flops_train"]
    bills = _bills(curves.assign(cost=cost), baseline)["cost"].groupby("policy").mean()
    return curves.assign(cost=cost, share=cost / curves["policy"].map(bills))


def _bills(curves: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """What the baseline's runs (policy, seed) have paid when they have spent their budget."""
    own = curves[curves["arm"] == baseline]
    names = [name for name in ("flops_generate", "flops", "cost") if name in own]
    paid = {name: at_shares(own, [1.0], name)[1.0] for name in names}
    return (
        own.drop_duplicates("run")
        .set_index("run")[["policy", "seed"]]
        .join(pd.DataFrame(paid))
        .set_index(["policy", "seed"])
    )


def at_price(runs: pd.DataFrame, baseline: str, weight: float) -> pd.DataFrame:
    """`runs` with their outcomes (repro.stats.outcomes) when a generation FLOP costs `weight`, and `short`, whether a
    run had spent less than the budget when it ended, so that it counts with the accuracy it had then."""
    curves = priced(rows("curves", runs[["run", "panel", *KEYS]]), baseline, weight)
    measured = outcomes(curves).assign(short=curves.groupby("run")["share"].max() < 0.995)
    kept = runs.drop(columns=[name for name in measured if name in runs])
    return kept.join(measured, on="run")


def contrasts(
    table: pd.DataFrame,
    measures: Sequence[str],
    asked: Sequence[Less],
    confidence: float,
    within: str | None = None,
    corrected: str = "fdr",
) -> pd.DataFrame:
    """A row per measure, value of `within` and level: measure, `within`, factor, level, and the columns of
    `repro.stats.answers.told`. `table`: a row per run with policy, seed, the factors and the measures. Variances are
    drawn together over the rows of a measure, and p is `corrected` over them."""
    places = [table] if within is None else [own for _, own in table.groupby(within, sort=False)]
    names = [{}] if within is None else [{within: value} for value in table[within].unique()]
    labels = [{**name, "factor": of.factor, "level": level} for name in names for of in asked for level in of.levels]
    parts = []
    for measure in measures:
        fit = nested(np.concatenate([paired(own, measure, *of) for own in places for of in asked]))
        parts.append(pd.DataFrame(labels).assign(measure=measure).join(told(fit, confidence, corrected)))
    return pd.concat(parts, ignore_index=True)


def differences(
    table: pd.DataFrame,
    measures: Sequence[str],
    arms: Sequence[str] | Mapping[str, str],
    baseline: str | None,
    confidence: float,
    within: str | None = None,
    corrected: str = "fdr",
) -> pd.DataFrame:
    """`contrasts` of arms: each less `baseline`, or, of a mapping, less the arm that it names."""
    asked = [Less([arm], other) for arm, other in arms.items()] if isinstance(arms, Mapping) else [Less(arms, baseline)]
    found = contrasts(table, measures, asked, confidence, within, corrected)
    return found.drop(columns="factor").rename(columns={"level": "arm"})


def evaluations(curves: pd.DataFrame, arms: Sequence[str], cost: str) -> tuple:
    """What a fit of one base policy takes (repro.stats.saturation): cost_N, accuracy_N, arm_N, start, weight_N."""
    start = curves.loc[curves["step"] == 0, "accuracy"].mean()
    later = curves[(curves["step"] > 0) & curves["arm"].isin(list(arms))]
    return later[cost], later["accuracy"], pd.Categorical(later["arm"], arms).codes, start, later["samples"]


def factors(curves: pd.DataFrame, arms: Sequence[str], cost: str) -> np.ndarray:
    """factor_A: what each arm spends of `cost` over what the first of `arms` spends to be as accurate, if one factor
    holds for its whole curve (repro.stats.saturation.scaled)."""
    return scaled(*evaluations(curves, arms, cost))


def leaving_out(
    curves: pd.DataFrame, where: Sequence[str], estimate: Callable[[pd.DataFrame], np.ndarray]
) -> Iterator[tuple[Any, list, np.ndarray]]:
    """For each place (values of `where`): it, its seeds, and estimates_J_…, row 0 of all seeds, row 1 + s without seed
    s; of a single seed row 0 alone."""
    for place, own in curves.groupby(list(where) if len(where) > 1 else where[0], sort=False):
        seeds = sorted(own["seed"].unique())
        kept = [own, *(own[own["seed"] != seed] for seed in seeds if len(seeds) > 1)]
        yield place, seeds, np.array([estimate(part) for part in kept])


def log_factors(curves: pd.DataFrame, arms: Sequence[str], cost: str) -> np.ndarray:
    """logs_A_P_S, for repro.stats.nested, of the `factors` of all arms but the first: pseudo-values over the seeds of
    each base policy."""
    left_out = leaving_out(curves, ["policy"], lambda part: np.log(factors(part, arms, cost)[1:]))
    return np.array([pseudo_values(logs_J_A) for _, _, logs_J_A in left_out]).transpose(2, 0, 1)


def pseudo_values(estimates_J: np.ndarray) -> np.ndarray:
    """S θ − (S−1) θ without the seed, for each seed: the jackknife's; their mean is nearly θ, their scatter θ's."""
    seeds = len(estimates_J) - 1
    return seeds * estimates_J[0] - (seeds - 1) * estimates_J[1:]
