"""Figures of the language model's training. Drawing only."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from repro.experiments.language_model.trained import Trained
from repro.plots import forest
from repro.plots.interactive import lines
from repro.plots.style import BASELINE, COLORS, new_figure
from repro.plots.words import says
from repro.stats.answers import MARGIN
from repro.stats.outcomes import at_shares

COLUMNS = 3
SHARES = np.linspace(0, 1, 11)


def answers(of: Trained, titles: Mapping[str, str], model: str, title: str) -> Figure:
    """Differences from the baseline when its budget is spent and by the area under the curve, on the language model,
    seeds as dots; and when it is spent on the base policies of this study, those as dots. `model`: its name."""
    there, here = (table.set_index(["measure", "arm"]) for table in (of.answers, of.here))
    each = of.answers["each"].set_axis(there.index)
    panels = {
        "at_budget": (f"{model},\nbudget spent", there.loc["at_1"], each["at_1"]),
        "area": (f"{model},\narea under the curve", there.loc["area"], each["area"]),
        "here": ("base policies made here,\nbudget spent", here.loc["at_1"], here.loc["at_1"]["by_policy"]),
    }
    first = there.loc["at_1"]
    rows = pd.DataFrame({"arm": first.index, "title": first.index.map(titles), "group": first["family"].to_numpy()})
    columns, found = [], []
    for name, (label, table, dots) in panels.items():
        for end in ("", "_low", "_high"):
            rows[name + end] = table[f"difference{end}"].to_numpy()
        rows[f"{name}_answer"], rows[f"{name}_each"] = table["answer"].to_numpy(), dots.to_list()
        columns.append(forest.Column(name, label, 0.0, alike=True))
        told = (f"{titles[arm]} {answer}" for arm, answer in table["answer"].items() if answer != "open")
        found.append(f"{' '.join(label.split())}: {', '.join(told) or 'all open'}")
    return forest.answers(rows, columns, MARGIN, title, "; ".join(found))


def curves(table: pd.DataFrame, arms: Sequence[str], baseline: str, titles: Mapping[str, str], title: str) -> Figure:
    """A panel for each of `arms`: held-out accuracy along the budget, the mean over seeds thick, each seed thin, beside
    the baseline's. `table`: evaluations with run, arm, seed, share, accuracy."""
    rows = -(-len(arms) // COLUMNS)
    figure, axes = new_figure(1.3 + 2.3 * rows, rows, COLUMNS, width=9.6, sharex=True, sharey=True)
    known = table.drop_duplicates("run").set_index("run")[["arm", "seed"]]
    long = known.join(at_shares(table, SHARES)).melt(["arm", "seed"], SHARES, "share", "accuracy")
    long["share"] = long["share"].astype(float)
    mean = long.groupby(["arm", "share"], sort=False)["accuracy"].mean().reset_index()
    looks = {baseline: {"color": BASELINE["color"], "linestyle": "--"}}
    for ax, arm in zip(axes.flat, arms, strict=False):
        for name in (baseline, arm):
            look = looks.get(name, {"color": COLORS[0], "linestyle": "-"})
            for _, seed in long[long["arm"] == name].groupby("seed"):
                ax.plot(seed["share"], seed["accuracy"], **look, linewidth=0.8, alpha=0.45)
            own = mean[mean["arm"] == name]
            label = titles[baseline] if name == baseline else "the arm"
            ax.plot(own["share"], own["accuracy"], **look, linewidth=2.4, label=label)
        ax.set_title(titles[arm], loc="left", fontsize=12)
    for ax in axes.flat[len(arms) :]:
        ax.set_axis_off()
    for ax in axes[:, 0]:
        ax.set_ylabel("held-out accuracy")
    axes[-1, COLUMNS // 2].set_xlabel("FLOPs spent, share of the budget")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.suptitle(title, x=0.01, ha="left")
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
