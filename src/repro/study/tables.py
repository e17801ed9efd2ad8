"""Tables as Markdown, every number with its interval, none typed by hand."""

from collections.abc import Mapping

import pandas as pd

AXIS_NAMES = {"trained_tokens": "trained tokens", "flops": "FLOPs"}


def number(row: pd.Series, name: str, digits: int, signed: bool = False) -> str:
    """`0.644 [0.630, 0.655]`; without its bracket when there is one seed."""
    form = f"{{:{'+' if signed else ''}.{digits}f}}"
    text = form.format(row[name])
    if pd.isna(row[f"{name}_low"]):
        return text
    return f"{text} [{form.format(row[f'{name}_low'])}, {form.format(row[f'{name}_high'])}]"


def ratio(row: pd.Series, name: str) -> str:
    """A cost ratio: `0.72 [0.60, 0.85]`; `≥ 1.04` where the arm's mean curve never reached the level."""
    if pd.isna(row[name]):
        return "undefined: the baseline did not rise"
    return number(row, name, 2) if row[f"{name}_reached"] else f"≥ {row[name]:.2f}"


def accuracy_table(summary: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """Markdown: arm, final accuracy, gain over the base policy, difference to the baseline paired by seed."""
    heads = ["arm", "final accuracy", "gain over the base policy", "difference to the baseline"]
    rows = [
        [
            titles[row["arm"]],
            number(row, "accuracy", 3),
            number(row, "gain", 3, signed=True),
            number(row, "difference", 3, signed=True),
        ]
        for _, row in summary.iterrows()
    ]
    return _markdown(heads, rows)


def ratio_table(summary: pd.DataFrame, titles: Mapping[str, str], axis: str, levels: list[float]) -> str:
    """Markdown: arm, and for each level the cost to reach it relative to the baseline."""
    heads = ["arm", *(f"{AXIS_NAMES.get(axis, axis)} to {level:.0%} of the rise" for level in levels)]
    names = [f"{axis}_ratio_{round(100 * level)}" for level in levels]
    rows = [[titles[row["arm"]], *(ratio(row, name) for name in names)] for _, row in summary.iterrows()]
    return _markdown(heads, rows)


def _markdown(heads: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, *rows)]
    return "\n".join([lines[0], "|---|" + "---:|" * (len(heads) - 1), *lines[1:]]) + "\n"
