"""Answers as a forest plot: differences from the baseline, and whether each is higher, lower, equal or open. Drawing
only."""

import textwrap
from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from repro.plots import forest
from repro.stats.answers import MARGIN

FEW = 6  # answers that are named; more are counted
LINE = 66  # letters of all panels' labels side by side


def answers(
    panels: Mapping[str, pd.DataFrame], titles: Mapping[str, str], title: str, far: float = forest.FAR
) -> Figure:
    """A panel for each of `panels`, {label: table}; arms by family, on the same axes everywhere.

    A table has a row per arm (the index): family, difference, difference_low, difference_high, answer, and each, a list
    of values that are dots. A panel leaves blank what its table lacks. `far`: see `repro.plots.forest.FAR`.
    """
    family = pd.concat([table["family"] for table in panels.values()])
    family = family[~family.index.duplicated()]
    order = pd.Series(pd.factorize(family)[0], family.index).sort_values(kind="stable").index
    rows = pd.DataFrame({"arm": order, "title": order.map(titles), "group": family[order].to_numpy()})
    columns, found = [], []
    for place, (label, table) in enumerate(panels.items()):
        name, own = f"panel_{place}", table.reindex(order)
        for end in ("", "_low", "_high"):
            rows[name + end] = own[f"difference{end}"].to_numpy()
        rows[f"{name}_answer"] = own["answer"].to_numpy()
        rows[f"{name}_each"] = [each if isinstance(each, list) else [] for each in own["each"]]
        wrapped = textwrap.fill(label, LINE // len(panels))
        columns.append(forest.Column(name, wrapped, 0.0, absent="", alike=True, far=far))
        found.append(f"{label}: {_found(table['answer'], titles)}")
    return forest.answers(rows, columns, MARGIN, title, "; ".join(found))


def _found(answer: pd.Series, titles: Mapping[str, str]) -> str:
    told = answer[answer != "open"]
    named = [f"{titles[arm]} {word}" for arm, word in told.items()] if len(told) <= FEW else []
    counted = answer[answer == "open"] if named else answer
    counts = counted.value_counts().reindex(["higher", "lower", "equal", "open"], fill_value=0)
    return ", ".join([*named, *(f"{count} {word}" for word, count in counts.items() if count)])
