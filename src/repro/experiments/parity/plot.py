"""Figures of one arm trained on two engines. Drawing only."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from repro.experiments.parity.summary import ENGINES, at_steps
from repro.plots.style import new_figure
from repro.plots.words import says

STYLES = {
    "embedded": {"color": "0.1", "marker": None, "linestyle": "-"},
    "verl": {"color": "#d55e00", "marker": "s", "linestyle": (0, (5, 1.5))},
}


def curves(evaluations: pd.DataFrame, compared: pd.DataFrame, titles: Mapping[str, str], title: str) -> Figure:
    """A row per arm. Left: held-out accuracy over training; thin: seeds, thick: their mean. Right: the difference of
    the means; band: the seed-to-seed interval around no difference. `evaluations` has a column `engine`; `compared`:
    repro.experiments.parity.summary.curves'."""
    arms = list(dict.fromkeys(compared["arm"]))
    figure, axes = new_figure(3.4 * len(arms) + 0.6, len(arms), 2)
    for (left, right), arm in zip(axes, arms, strict=True):
        of_arm = evaluations[evaluations["arm"] == arm]
        for engine, style in STYLES.items():
            runs = of_arm[of_arm["engine"] == engine]
            table = at_steps(runs, sorted(set(runs["step"]))).T
            left.plot(table, color=style["color"], linestyle=style["linestyle"], linewidth=0.7, alpha=0.4)
            left.plot(table.mean(axis=1), label=ENGINES[engine], **style)
        rows = compared[compared["arm"] == arm]
        right.fill_between(rows["step"], -100 * rows["half_width"], 100 * rows["half_width"], color="0.88")
        right.axhline(0, color="0.4", linewidth=1)
        right.plot(rows["step"], 100 * rows["difference"], **STYLES["verl"])
        left.set_title(titles[arm], loc="left")
        left.set_ylabel("held-out accuracy (pass@1)")
        right.set_ylabel("verl − embedded (points)")
    for ax in axes[-1]:
        ax.set_xlabel("training step")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    figure.suptitle(title, x=0.01, ha="left")
    most = 100 * compared["difference"].abs().max()
    counted = f"{compared['within'].sum()} of {len(compared)} evaluations"
    return says(figure, f"{counted} are within the seed-to-seed interval; the largest difference is {most:.1f} points")
