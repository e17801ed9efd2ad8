"""The study's tables for reading, from `efficiency.summarise`'s: a row per arm, indexed by group and arm."""

from collections.abc import Iterable, Sequence

import pandas as pd

from repro.settings import Settings
from repro.stats.pass_at_k import KS
from repro.stats.runs import compared
from repro.stats.tables import intervals, markdown, p_value, ratio

AXIS_NAMES = {
    "paper_tokens": "trained tokens (papers' count)",
    "trained_tokens": "trained tokens (computed)",
    "total_tokens": "generated + trained tokens (computed)",
    "flops": "FLOPs",
}
FRONT_AXES = ("paper_tokens", "trained_tokens", "flops")
CONTROLS = "Controls"  # the group of arms that no one proposes to use
OUTCOMES = {"more": "higher", "less": "lower", "not resolved": "no"}
PLAIN, SIGNED = "z.3f", "+z.3f"  # z: no negative zero


def accuracy_table(summary: pd.DataFrame) -> pd.DataFrame:
    """How each arm ends: final accuracy, paired difference, probability of improvement, p before and after Holm; and
    the same greedily, without p."""
    better = summary["improvement"].map("{:.2f}".format).where(summary["resolved"] != "baseline", "–")
    columns = {
        "final accuracy": intervals(summary, "accuracy", PLAIN),
        "difference from the baseline": _against(summary, "difference"),
        "P(better)": better,
        "p": summary["p_value"].map(p_value),
        "p (Holm)": summary["p_holm"].map(p_value),
        "significant": _outcome(summary),
        **_measured(summary, "greedy", "greedy"),
    }
    return _table(summary, columns)


def harder_table(summary: pd.DataFrame) -> pd.DataFrame:
    """How each arm ends on the harder split, at temperature 1 and greedily."""
    columns = _measured(summary, "harder", "temperature 1") | _measured(summary, "harder_greedy", "greedy")
    return _table(summary, columns)


def best_table(summary: pd.DataFrame) -> pd.DataFrame:
    """Best checkpoint of each run (the papers' tables of accuracy), gain over the start, interquartile mean."""
    columns = {
        "best checkpoint": intervals(summary, "best", PLAIN),
        "difference from the baseline's best": _against(summary, "best_difference"),
        "gain over the base policy, at the end": intervals(summary, "gain", SIGNED),
        "interquartile mean, at the end": intervals(summary, "iqm", PLAIN),
    }
    return _table(summary, columns)


def pass_table(summary: pd.DataFrame) -> pd.DataFrame:
    """pass@k at the end, and its difference from the baseline paired by seed."""
    columns = {}
    for k in KS:
        columns[f"pass@{k}"] = intervals(summary, f"pass_{k}", PLAIN)
        if k > 1:
            columns[f"difference at {k}"] = _against(summary, f"pass_{k}_difference")
    return _table(summary, columns)


def ratio_table(summary: pd.DataFrame, axes: Iterable[str], levels: Sequence[float]) -> pd.DataFrame:
    """The cost to reach each level relative to the baseline's, on every axis of `axes` that the summary has."""
    return _table(summary, _ratios(summary, axes, levels))


def totals_table(summary: pd.DataFrame) -> pd.DataFrame:
    """Tokens over the whole run, relative to the baseline's."""
    heads = {
        "paper": "tokens trained on, in all (papers' count)",
        "tokens": "tokens trained on, in all (computed)",
        "generated": "tokens generated, in all",
    }
    return _table(summary, {head: intervals(summary, name, "z.2f") for name, head in heads.items() if name in summary})


def front_arms(settings: Settings) -> list[str]:
    """The arms of the front page: the first of every group, every control, and those that represent a method where not
    all of them are run. Chosen in params.yaml, before any result."""
    groups: dict[str, list[str]] = {}
    for arm in compared(settings):
        groups.setdefault(settings.arm(arm).group, []).append(arm)
    chosen = {settings.baseline, *settings.primaries, *settings.fidelity.arms, *groups.get(CONTROLS, [])}
    chosen |= {arms[0] for arms in groups.values()}
    return [arm for arm in compared(settings) if arm in chosen]


def front_table(summary: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """The short table, the baseline first: how the arms of `front_arms` end, at temperature 1 and greedily, and what
    the lowest level costs them."""
    rows = summary[summary["arm"].isin(front_arms(settings))]
    rows = rows.sort_values("arm", key=lambda arm: arm != settings.baseline, kind="stable")
    columns = {
        "final accuracy": intervals(rows, "accuracy", PLAIN),
        "difference from the baseline": _against(rows, "difference"),
        "significant": _outcome(rows),
        **_measured(rows, "greedy", "greedy"),
        **_ratios(rows, FRONT_AXES, settings.statistics.levels[:1]),
    }
    return _table(rows, columns).droplevel("group")


def profiled_table(summary: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """The arms whose plan knows a profile, and those that they are compared with: how they end, what share of their
    FLOPs profiling took, and what the lowest level costs with that included."""
    groups = {arm.group for arm in settings.all_arms.values() if arm.profile}
    rows = summary[summary["group"].isin(groups) | (summary["arm"] == settings.baseline)]
    columns = {
        "final accuracy": intervals(rows, "accuracy", PLAIN),
        "difference from the baseline": _against(rows, "difference"),
        "significant": _outcome(rows),
        "FLOPs in all, the baseline's = 1": rows["compute"].map("{:.2f}".format),
        "of them profiling": rows["profile_share"].map("{:.0%}".format),
        **_ratios(rows, ("total_tokens", "flops"), settings.statistics.levels[:1]),
    }
    return _table(rows, columns).droplevel("group")


def as_markdown(table: pd.DataFrame) -> str:
    """Any of these tables as Markdown; a group is named in its first row alone."""
    table = table.reset_index()
    if "group" in table:
        table["group"] = table["group"].mask(table["group"].duplicated(), "")
    return markdown(table)


def _table(summary: pd.DataFrame, columns: dict[str, Iterable[str]]) -> pd.DataFrame:
    index = pd.MultiIndex.from_arrays([summary["group"], summary["title"]], names=["group", "arm"])
    return pd.DataFrame({name: list(cells) for name, cells in columns.items()}, index=index)


def _measured(summary: pd.DataFrame, name: str, head: str) -> dict[str, list[str]]:
    """Where the runs end by a measure of `efficiency.MEASURES`, and the paired difference; a star where it is
    significant. Nothing where it was not measured."""
    if name not in summary:
        return {}
    stars = summary[f"{name}_resolved"].isin(["more", "less"])
    against = zip(_against(summary, f"{name}_difference"), stars, strict=True)
    return {
        head: intervals(summary, name, PLAIN),
        f"{head}, difference": [f"{cell}{' *' * star}" for cell, star in against],
    }


def _ratios(summary: pd.DataFrame, axes: Iterable[str], levels: Sequence[float]) -> dict[str, list[str]]:
    return {
        f"{AXIS_NAMES[axis]} to {level:.0%} of the rise": [ratio(row, name) for _, row in summary.iterrows()]
        for axis in axes
        for level in levels
        if (name := f"{axis}_ratio_{round(100 * level)}") in summary
    }


def _against(summary: pd.DataFrame, name: str) -> list[str]:
    cells = zip(intervals(summary, name, SIGNED), summary["resolved"] == "baseline", strict=True)
    return ["baseline" if baseline else cell for cell, baseline in cells]


def _outcome(summary: pd.DataFrame) -> list[str]:
    """Significantly `higher` or `lower` than the baseline after Holm's correction, or `no`; with the runs that diverged
    or collapsed (they stay in every mean)."""
    cells = []
    for row in summary.to_dict("records"):
        counts = [f"{row[name]} of {row['seeds']} {name}" for name in ("diverged", "collapsed") if row[name]]
        cells.append("; ".join([OUTCOMES.get(row["resolved"], row["resolved"]), *counts]))
    return cells
