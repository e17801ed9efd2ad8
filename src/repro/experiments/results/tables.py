"""Tables as Markdown, every number with its interval, none typed by hand. Each takes `efficiency.summarise`'s table."""

from collections.abc import Callable, Sequence

import pandas as pd

from repro.settings import Settings
from repro.stats.pass_at_k import KS
from repro.stats.runs import compared

AXIS_NAMES = {
    "trained_tokens": "trained tokens",
    "total_tokens": "generated + trained tokens",
    "flops": "FLOPs",
    "seconds": "seconds",
}
CONTROLS = "Controls"  # the group of arms that no one proposes to use
Cell = Callable[[pd.Series], str]


def number(row: pd.Series, name: str, digits: int, signed: bool = False) -> str:
    """`0.644 [0.630, 0.655]`; without its bracket when there is one seed; a dash when it is not known."""
    form = f"{{:{'+' if signed else ''}z.{digits}f}}"  # z: no negative zero
    if pd.isna(row[name]):
        return "–"
    text = form.format(row[name])
    if pd.isna(row[f"{name}_low"]):
        return text
    return f"{text} [{form.format(row[f'{name}_low'])}, {form.format(row[f'{name}_high'])}]"


def ratio(row: pd.Series, name: str) -> str:
    """A cost ratio: `0.72 [0.60, 0.85]`; `≥ 1.04` where the arm's mean curve never reached the level, and
    `0.96 [0.87, ≥ 1.02]` where too many of its resamples did not for the upper end to be known."""
    if pd.isna(row[name]):
        return "undefined: the baseline did not rise"
    if not row[f"{name}_reached"]:
        return f"≥ {row[name]:.2f}"
    text = number(row, name, 2)
    return text.replace(", ", ", ≥ ") if row[f"{name}_open"] else text


def speedup(row: pd.Series, name: str) -> str:
    """Time to accuracy against the baseline's: `1.31× [1.10, 1.52]`; `≤ 0.96×` where the level was not reached."""
    if pd.isna(row[name]):
        return "undefined: the baseline did not rise"
    if not row[f"{name}_reached"]:
        return f"≤ {row[name]:.2f}×"
    text = number(row, name, 2).replace(" [", "× [≤ " if row[f"{name}_open"] else "× [")
    return text if "×" in text else f"{text}×"


def p_value(row: pd.Series, name: str) -> str:
    """Three digits, `<0.001` below them, a dash where there was no test."""
    return "–" if pd.isna(row[name]) else "<0.001" if row[name] < 0.001 else f"{row[name]:.3f}"


def verdict(row: pd.Series) -> str:
    """`more`, `less` or `not resolved`, with the runs that diverged or collapsed (they stay in every mean)."""
    counts = [f"{row[name]} of {row['seeds']} {name}" for name in ("diverged", "collapsed") if row[name]]
    return "; ".join([str(row["resolved"]), *counts])


def accuracy_table(summary: pd.DataFrame, groups: bool = True) -> str:
    """How each arm ends: final accuracy, paired difference, probability of improvement, p before and after Holm."""
    cells: dict[str, Cell] = {
        "final accuracy": lambda row: number(row, "accuracy", 3),
        "difference to the baseline": lambda row: _against(row, "difference"),
        "P(better)": lambda row: "–" if row["resolved"] == "baseline" else f"{row['improvement']:.2f}",
        "p": lambda row: p_value(row, "p_value"),
        "p (Holm)": lambda row: p_value(row, "p_holm"),
        "resolved": verdict,
    }
    return _table(summary, cells, groups)


def best_table(summary: pd.DataFrame, groups: bool = True) -> str:
    """Best checkpoint of each run (the papers' tables of accuracy), gain over the start, interquartile mean."""
    cells: dict[str, Cell] = {
        "best checkpoint": lambda row: number(row, "best", 3),
        "difference to the baseline's best": lambda row: _against(row, "best_difference"),
        "gain over the base policy, at the end": lambda row: number(row, "gain", 3, signed=True),
        "interquartile mean, at the end": lambda row: number(row, "iqm", 3),
    }
    return _table(summary, cells, groups)


def pass_table(summary: pd.DataFrame, groups: bool = True) -> str:
    """pass@k at the end, and its difference to the baseline paired by seed."""
    cells: dict[str, Cell] = {}
    for k in KS:
        cells[f"pass@{k}"] = lambda row, k=k: number(row, f"pass_{k}", 3)
        if k > 1:
            cells[f"difference at {k}"] = lambda row, k=k: _against(row, f"pass_{k}_difference")
    return _table(summary, cells, groups)


def ratio_table(summary: pd.DataFrame, axis: str, levels: Sequence[float], groups: bool = True) -> str:
    """For each level the cost to reach it on one axis, relative to the baseline."""
    cells: dict[str, Cell] = {
        f"{AXIS_NAMES.get(axis, axis)} to {level:.0%} of the rise": _ratio_cell(axis, level) for level in levels
    }
    return _table(summary, cells, groups)


def axes_table(summary: pd.DataFrame, level: float, groups: bool = True) -> str:
    """One level on every axis that the summary has: the axes can rank arms differently."""
    axes = [axis for axis in AXIS_NAMES if f"{axis}_ratio_{round(100 * level)}" in summary]
    cells: dict[str, Cell] = {
        f"{AXIS_NAMES[axis]} to {level:.0%} of the rise": _ratio_cell(axis, level) for axis in axes
    }
    return _table(summary, cells, groups)


def speedup_table(summary: pd.DataFrame, levels: Sequence[float], groups: bool = True) -> str:
    """Time to accuracy, in the form of D³S's Table 3 with 100% the baseline's peak; and tokens over the whole run."""
    cells: dict[str, Cell] = {
        f"speed-up to {level:.0%} of the rise": lambda row, level=level: speedup(row, f"speedup_{round(100 * level)}")
        for level in sorted(levels, reverse=True)
        if f"speedup_{round(100 * level)}" in summary
    }
    cells["tokens trained on, in all"] = lambda row: number(row, "tokens", 2)
    cells["tokens generated, in all"] = lambda row: number(row, "generated", 2)
    return _table(summary, cells, groups)


def front_arms(settings: Settings) -> list[str]:
    """The arms of the front page: the first of every group, every control, and those that stand for a method where not
    all of them are run (regimes, fidelity). Chosen in params.yaml, before any result."""
    groups: dict[str, list[str]] = {}
    for arm in compared(settings):
        groups.setdefault(settings.arms[arm].group, []).append(arm)
    chosen = {settings.baseline, *settings.regimes.arms, *settings.fidelity.arms, *groups.get(CONTROLS, [])}
    chosen |= {arms[0] for arms in groups.values()}
    return [arm for arm in compared(settings) if arm in chosen]


def front_table(summary: pd.DataFrame, settings: Settings) -> str:
    """The short table: how the arms of `front_arms` end, and what the lowest level costs them."""
    level = settings.statistics.levels[0]
    cells: dict[str, Cell] = {
        "final accuracy": lambda row: number(row, "accuracy", 3),
        "difference to the baseline": lambda row: _against(row, "difference"),
        "resolved": verdict,
        f"trained tokens to {level:.0%} of the rise": _ratio_cell("trained_tokens", level),
        f"FLOPs to {level:.0%} of the rise": _ratio_cell("flops", level),
    }
    return _table(summary[summary["arm"].isin(front_arms(settings))], cells, groups=False)


def profiled_table(summary: pd.DataFrame, settings: Settings) -> str:
    """The arms whose plan knows a profile, and those that they are held against: how they end, what profiling took of
    their FLOPs, and what the lowest level costs with that included."""
    level = settings.statistics.levels[0]
    groups = {settings.arms[name].group for name, arm in settings.arms.items() if arm.profile}
    chosen = summary["group"].isin(groups) | (summary["arm"] == settings.baseline)
    cells: dict[str, Cell] = {
        "final accuracy": lambda row: number(row, "accuracy", 3),
        "difference to the baseline": lambda row: _against(row, "difference"),
        "resolved": verdict,
        "FLOPs in all, the baseline's = 1": lambda row: f"{row['compute']:.2f}",
        "of them profiling": lambda row: f"{row['profile_share']:.0%}",
        f"generated + trained tokens to {level:.0%} of the rise": _ratio_cell("total_tokens", level),
        f"FLOPs to {level:.0%} of the rise": _ratio_cell("flops", level),
    }
    return _table(summary[chosen], cells, groups=False)


def _ratio_cell(axis: str, level: float) -> Cell:
    return lambda row: ratio(row, f"{axis}_ratio_{round(100 * level)}")


def _against(row: pd.Series, name: str) -> str:
    return "baseline" if row["resolved"] == "baseline" else number(row, name, 3, signed=True)


def _table(summary: pd.DataFrame, cells: dict[str, Cell], groups: bool) -> str:
    """A row per arm in the summary's order; with `groups`, a bold row opens each group."""
    lines = ["| " + " | ".join(["arm", *cells]) + " |", "|---|" + "---:|" * len(cells)]
    last = None
    for _, row in summary.iterrows():
        if groups and row["group"] != last:
            lines.append(f"| **{_escaped(row['group'])}** |" + " |" * len(cells))
            last = row["group"]
        lines.append("| " + " | ".join([_escaped(row["title"]), *(cell(row) for cell in cells.values())]) + " |")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
