"""A panel made again on another kind of CPU, against the panel that it repeats: do the printed intervals hold?"""

from itertools import combinations

import numpy as np
import pandas as pd

from repro.atlas.design import Design, arms_of
from repro.errors import Refused
from repro.experiments.results.repeated import repeated
from repro.settings import Settings
from repro.stats import atlas
from repro.stats.correlation import spearman
from repro.stats.intervals import predicted, t_intervals
from repro.stats.multiplicity import significance
from repro.stats.runs import last_of
from repro.stats.tables import interval, markdown


class NotMadeAgain(Refused):
    """One sentence: which runs the atlas lacks."""


def both(design: Design, panel: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The evaluations of the repeated panel's runs and of `panel`'s, as repro.stats.runs has them: of the seeds that
    `panel` has of every arm."""
    of = design.panels[panel]
    if of.repeats is None:
        raise NotMadeAgain(f"panel {panel} repeats no other: in atlas/design.yaml, `repeats` names the one")
    arms, runs = arms_of(design, of), atlas.load("runs", panel)
    seeds = [seed for seed in of.seeds if len(runs) and set(arms) <= set(runs.loc[runs["seed"] == seed, "arm"])]
    if len(seeds) < 2:
        raise NotMadeAgain(f"the atlas has {len(seeds)} whole seeds of panel {panel}, and needs two: `make atlas`")
    return tuple(atlas.of_seeds("evaluations", name, arms, seeds) for name in (of.repeats, panel))


def summary(first: pd.DataFrame, second: pd.DataFrame, settings: Settings) -> dict[str, str]:
    """What is printed: {figure: value}."""
    there, here = (last_of(table)["accuracy"].unstack("seed") for table in (first, second))
    arms, confidence = list(there.index), settings.statistics.confidence
    here = here.loc[arms]
    table = repeated(second, first, settings).set_index("arm")
    others = list(table.index)
    one, two = (frame.loc[others].to_numpy() - frame.loc[settings.baseline].to_numpy() for frame in (there, here))
    _, low, high = t_intervals(one, confidence)
    residual = [(frame.to_numpy() - frame.mean(axis=1).to_numpy()[:, None]).ravel() for frame in (there, here)]
    shift = t_intervals((here - there).mean(axis=0).to_numpy(), confidence)  # over seeds, each a mean over arms
    cut, cuts = crossed(one, two, confidence)
    resolved = [_resolved(frame, others, settings) for frame in (one, two)]
    n, seeds = len(others), there.shape[1]
    return {
        "runs made again": f"{here.size}",
        "of them with the same bits": f"{table['same_bits'].sum()}",
        "final accuracy, second less first, mean over arms": interval(*map(float, shift), "+.4f"),
        "correlation of a run's final accuracy, less its arm's mean, with that of the same seed": (
            f"{np.corrcoef(*residual)[0, 1]:.2f}"
        ),
        "rank correlation of the arms' differences to the baseline": f"{spearman(one.mean(1), two.mean(1)):.2f}",
        f"second differences inside the first's {confidence:.0%} confidence intervals": _share(
            (two.mean(1) >= low) & (two.mean(1) <= high)
        ),
        f"inside its {confidence:.0%} prediction intervals, {seeds} seeds to {seeds}": _share(
            table["inside"].to_numpy()
        ),
        f"the same of {cut} seeds of the first to the other {seeds - cut} of the second, all {cuts[0]} cuts": (
            f"{cuts[1]:.1%} of {cuts[0] * n}"
        ),
        "significant after Holm's correction, first": ", ".join(resolved[0]) or "none",
        "significant after Holm's correction, second": ", ".join(resolved[1]) or "none",
    }


def crossed(first_A_S: np.ndarray, second_A_S: np.ndarray, confidence: float) -> tuple[int, tuple[int, float]]:
    """(seeds in a part, (number of cuts, share)): of the prediction intervals of more than half of the first study's
    seeds, the share that holds the mean of the *other* seeds in the second, over all ways to cut."""
    seeds = first_A_S.shape[1]
    part = (seeds + 1) // 2
    inside = []
    for chosen in combinations(range(seeds), part):
        rest = [seed for seed in range(seeds) if seed not in chosen]
        _, low, high = predicted(first_A_S[:, list(chosen)], len(rest), confidence)
        mean = second_A_S[:, rest].mean(1)
        inside.append((mean >= low) & (mean <= high))
    return part, (len(inside), float(np.mean(inside)))


def outside(first: pd.DataFrame, second: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """The arms whose second difference lies outside the first's prediction interval, a row each."""
    table = repeated(second, first, settings)
    return table.loc[~table["inside"], ["arm", "atlas", "low", "high", "difference"]]


def as_markdown(design: Design, panel: str, settings: Settings) -> str:
    """The whole comparison."""
    first, second = both(design, panel)
    runs = atlas.load("runs")
    cpus = [
        ", ".join(runs.loc[runs["panel"] == name, "cpu"].unique()) for name in (design.panels[panel].repeats, panel)
    ]
    figures = summary(first, second, settings)
    table = markdown(pd.DataFrame({"figure": figures.keys(), "value": figures.values()}))
    left = outside(first, second, settings).rename(columns={"atlas": "first", "difference": "second"})
    rows = markdown(left, formats=dict.fromkeys(["first", "low", "high", "second"], "+.4f")) if len(left) else "None."
    return f"First: {cpus[0]}. Second: {cpus[1]}.\n\n{table}\n\nOutside the prediction intervals:\n\n{rows}\n"


def _share(inside: np.ndarray) -> str:
    return f"{inside.sum()} of {len(inside)}, {inside.mean():.1%}"


def _resolved(differences_A_S: np.ndarray, arms: list[str], settings: Settings) -> list[str]:
    columns = significance(differences_A_S, arms, settings.baseline, arms, settings.statistics.confidence)
    return [arm for arm, word in zip(arms, columns["resolved"], strict=True) if word in ("more", "less")]
