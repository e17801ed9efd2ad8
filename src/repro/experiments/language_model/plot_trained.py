"""Figures of the language model's training. Drawing only."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from repro.experiments.language_model.trained import Trained
from repro.plots import answers as drawn_answers
from repro.plots import grid
from repro.plots.interactive import lines
from repro.plots.style import BASELINE, COLORS
from repro.plots.words import says
from repro.stats.outcomes import at_shares

SHARES = np.linspace(0, 1, 11)


def answers(of: Trained, titles: Mapping[str, str], model: str, title: str) -> Figure:
    """Differences from the baseline when its budget is spent and by the area under the curve, on the language model,
    seeds as dots; and when it is spent on the base policies of this study, those as dots. `model`: its name."""
    panels = {
        f"{model}, budget spent": _by(of.answers, "at_1"),
        f"{model}, area under the curve": _by(of.answers, "area"),
        "base policies made here, budget spent": _by(of.here, "at_1").assign(each=lambda table: table["by_policy"]),
    }
    return drawn_answers.answers(panels, titles, title)


def _by(answers: pd.DataFrame, measure: str) -> pd.DataFrame:
    return answers[answers["measure"] == measure].set_index("arm")


def curves(table: pd.DataFrame, arms: Sequence[str], baseline: str, titles: Mapping[str, str], title: str) -> Figure:
    """A panel for each of `arms`: held-out accuracy along the budget, the mean over seeds thick, each seed thin, beside
    the baseline's. `table`: evaluations with run, arm, seed, share, accuracy."""
    labels = "FLOPs spent, share of the budget", "held-out accuracy"
    figure, panels = grid.grid(arms, titles, labels, title)
    known = table.drop_duplicates("run").set_index("run")[["arm", "seed"]]
    long = known.join(at_shares(table, SHARES)).melt(["arm", "seed"], SHARES, "share", "accuracy")
    long["share"] = long["share"].astype(float)
    mean = long.groupby(["arm", "share"], sort=False)["accuracy"].mean().reset_index()
    looks = {baseline: {"color": BASELINE["color"], "linestyle": "--"}}
    for arm, ax in panels.items():
        for name in (baseline, arm):
            look = looks.get(name, {"color": COLORS[0], "linestyle": "-"})
            for _, seed in long[long["arm"] == name].groupby("seed"):
                ax.plot(seed["share"], seed["accuracy"], **look, linewidth=0.8, alpha=0.45)
            own = mean[mean["arm"] == name]
            label = titles[baseline] if name == baseline else "the arm"
            ax.plot(own["share"], own["accuracy"], **look, linewidth=2.4, label=label)
    grid.legend(figure, panels)
    last = mean[mean["share"] == 1.0].set_index("arm")["accuracy"]
    ends = f"when the budget is spent: highest {titles[last.idxmax()]}, {last.max():.3f}; {titles[baseline]} "
    return lines(
        says(figure, ends + f"{last[baseline]:.3f}"),
        mean.assign(title=mean["arm"].map(titles)),
        x="share",
        y="accuracy",
        by="title",
        labels=("share of the budget", "accuracy"),
        base=titles[baseline],
        shown=[titles[arm] for arm in arms],
    )
