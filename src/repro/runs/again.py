"""A panel made again on another kind of CPU, against the panel that it repeats: do the printed intervals hold?"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from repro.errors import Refused
from repro.experiments.results.repeated import crossed, differences, repeated
from repro.runs.design import Design, arms_of
from repro.settings import Settings
from repro.stats import panels
from repro.stats.correlation import spearman
from repro.stats.intervals import t_intervals
from repro.stats.runs import last_of
from repro.stats.tables import markdown


class NotMadeAgain(Refused):
    """One sentence: which runs the store lacks."""


@dataclass(frozen=True)
class Pair:
    """From one base policy, the evaluations of `arms` in a panel and in the one that repeats it, as repro.stats.runs
    has them; `seeds`: those that every arm has in the second."""

    policy: str
    arms: list[str]
    seeds: list[int]
    first: pd.DataFrame
    second: pd.DataFrame


def pairs(design: Design, panel: str) -> list[Pair]:
    """From each base policy the arms that `panel` has with every seed; and all that it has at all, with the seeds that
    they share, if these are others. NotMadeAgain where there are neither, or an arm has several runs with one seed;
    Unreadable where the panel that is repeated lacks one of them."""
    of = design.panels[panel]
    if of.repeats is None:
        raise NotMadeAgain(f"panel {panel} repeats no other: in runs/design.yaml, `repeats` names the one")
    if of.vary or any(len(rates) > 1 for rates in of.rates.values()):
        raise NotMadeAgain(f"panel {panel} has several runs of an arm with one seed: only panels of one are compared")
    runs, found = panels.load("runs", panel), []
    for policy in of.policies if len(runs) else ():
        for arms, seeds in _made(runs[runs["policy"] == policy], arms_of(design, of), of.seeds):
            first = panels.of_seeds("evaluations", of.repeats, arms, of.seeds, policy)
            second = panels.of_seeds("evaluations", panel, arms, seeds, policy)
            found.append(Pair(policy, arms, seeds, first, second))
    if not found:
        raise NotMadeAgain(
            f"runs/panels has no whole seed and no whole arm of panel {panel} yet: `make runs PANEL={panel}`"
        )
    return found


def _made(runs: pd.DataFrame, arms: list[str], seeds: list[int]) -> list[tuple[list[str], list[int]]]:
    """(arms, seeds) to compare, of those of one base policy that are made."""
    own = runs.groupby("arm")["seed"].agg(set)
    made = {arm: own[arm] for arm in arms if arm in own}
    whole = [arm for arm, of_arm in made.items() if of_arm == set(seeds)]
    common = [seed for seed in seeds if made and all(seed in of_arm for of_arm in made.values())]
    chosen = [(whole, list(seeds))] if len(whole) > 1 else []
    return chosen + ([(list(made), common)] if common and len(whole) < len(made) else [])


def summary(pair: Pair, settings: Settings) -> dict[str, str]:
    """What is printed: {figure: value}."""
    there, here = (last_of(table)["accuracy"].unstack("seed").loc[pair.arms] for table in (pair.first, pair.second))
    confidence, twice = settings.statistics.confidence, there[pair.seeds]
    table = repeated(pair.second, pair.first, settings).set_index("arm")
    others = list(table.index)
    one, two = (differences(frame, settings.baseline).loc[others] for frame in (pair.first, pair.second))
    _, low, high = t_intervals(one.to_numpy(), confidence)
    residual = [(frame.to_numpy() - frame.mean(axis=1).to_numpy()[:, None]).ravel() for frame in (twice, here)]
    apart = (here - twice).abs().to_numpy().ravel()
    cuts = crossed(one, two, confidence)
    mean_A = two.mean(axis=1)
    return {
        "runs made again": f"{here.size}",
        "of them with the same bits": f"{table['same_bits'].sum()} of {len(others) * len(pair.seeds)}, baseline apart",
        "final accuracy of a seed's two runs: median and largest difference": (
            f"{np.median(apart):.4f}, {apart.max():.4f}"
        ),
        "correlation of a run's final accuracy, less its arm's mean, with that of the same seed": (
            f"{np.corrcoef(*residual)[0, 1]:.2f}" if len(pair.seeds) > 1 else "–"
        ),
        "rank correlation of the arms' differences to the baseline": f"{spearman(one.mean(axis=1), mean_A):.2f}",
        f"second differences inside the first's {confidence:.0%} confidence intervals": _share(
            ((mean_A >= low) & (mean_A <= high)).to_numpy()
        ),
        f"inside its {confidence:.0%} prediction intervals": _share(table["inside"].to_numpy()),
        "inside those from some of the first's seeds, for the second's other seeds": (
            f"{cuts['contained'].mean():.1%} of {len(cuts) * len(others)}, {len(cuts)} cuts"
        ),
        "outside these prediction intervals": ", ".join(table.index[~table["inside"]]) or "none",
    }


def as_markdown(design: Design, panel: str, settings: Settings) -> str:
    """The whole comparison, a column for each pair."""
    runs = panels.load("runs")
    names = (design.panels[panel].repeats, panel)
    compared = pairs(design, panel)
    cpus = [", ".join(runs.loc[runs["panel"] == name, "cpu"].unique()) for name in names]
    several = len(design.panels[panel].policies) > 1
    columns = [
        f"{len(pair.seeds)} seed{'s' * (len(pair.seeds) > 1)} of {len(pair.arms)} arms"
        + (f", base policy {pair.policy}" if several else "")
        for pair in compared
    ]
    values = {column: summary(pair, settings) for column, pair in zip(columns, compared, strict=True)}
    table = pd.DataFrame(values).rename_axis("figure").reset_index()
    return f"First: {cpus[0]}. Second: {cpus[1]}.\n\n{markdown(table)}"


def _share(inside: np.ndarray) -> str:
    return f"{inside.sum()} of {len(inside)}, {inside.mean():.1%}"
