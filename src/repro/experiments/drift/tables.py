"""The drift of a profile in tables and in words, computed."""

from collections.abc import Mapping

import pandas as pd

from repro.experiments.drift.summary import REPROFILED, Rule
from repro.experiments.fidelity.probe import BASE
from repro.experiments.profile.describe import CLASSES
from repro.settings import Statistics
from repro.stats.intervals import mean_intervals

Span = tuple[float, float, float]
AGREEMENT = {
    "spearman": "rank correlation with the first profile",
    "corrected": "the same without sampling noise",
}
DECISIONS = {
    "class_changed": "another class",
    "size_changed": "another group size",
    "dropped_wrongly": "dropped, teaches now",
    "kept_wrongly": "kept, silent now",
}
MOVES = {
    "success": "mean success",
    "rose": "from below ½ to above",
    "fell": "from above ½ to below",
}


def over_training_table(over: pd.DataFrame, titles: Mapping[str, str], heads: Mapping[str, str]) -> str:
    """Markdown: columns `heads` of `repro.experiments.drift.summary.over_seeds`, a row per checkpoint; shares in %."""
    lines = [f"| policy | step | {' | '.join(heads.values())} |", "|---|---:|" + "---:|" * len(heads)]
    for (arm, step), row in over.iterrows():
        cells = [_span(_of(row, name), percent=name not in AGREEMENT) for name in heads]
        lines.append(f"| {titles[arm]} | {step} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def transition_table(transitions: pd.DataFrame, arm: str, step: int, statistics: Statistics) -> str:
    """Markdown: of the queries filed in each class at first (rows), the share in each now (columns); in brackets the
    interval, then what resampling alone gives, from the base policy."""
    lines = ["| filed at first as | share | " + " | ".join(f"{name} now" for name in CLASSES) + " |"]
    lines.append("|---|---:|" + "---:|" * len(CLASSES))
    tables = {
        name: transitions[(transitions["arm"] == who) & (transitions["step"] == when)]
        for name, who, when in (("now", arm, step), ("resampled", BASE, 0))
    }
    for before in CLASSES:
        filed = tables["now"][tables["now"]["before"] == before].groupby("seed")["share"].sum()
        cells = [_span(_mean(filed, statistics), percent=True)]
        for after in CLASSES:
            found = {}
            for name, table in tables.items():
                rows = table[(table["before"] == before) & (table["after"] == after)]
                found[name] = _span(_mean(rows["chance"].dropna(), statistics), percent=True)
            cells.append(f"{found['now']}; resampled {found['resampled']}")
        lines.append(f"| {before} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def signal_table(over: pd.DataFrame, titles: Mapping[str, str], samples: int) -> str:
    """Markdown: what groups on the queries of each class would bring, a row per checkpoint."""
    lines = [
        f"| policy | step | {' | '.join(f'filed as {name}' for name in CLASSES)} |",
        "|---|---:|" + "---:|" * len(CLASSES),
    ]
    for (arm, step), row in over.iterrows():
        cells = [_span(_of(row, f"signal_{name}"), percent=True) for name in CLASSES]
        lines.append(f"| {titles[arm]} | {step} | {' | '.join(cells)} |")
    return "\n".join(lines) + f"\n\nShare of groups of {samples} rollouts whose rewards differ.\n"


def reprofiled_table(runs: pd.DataFrame, titles: Mapping[str, str], statistics: Statistics) -> str:
    """Markdown: `repro.experiments.drift.summary.reprofiled`, mean over seeds; accuracies in points."""
    heads = {
        "equal_steps": "points gained, equal steps",
        "equal_compute": "points gained, equal FLOPs",
        "mean_compute": "the same, mean over training",
        "flops": "FLOPs in all, relative",
        "profile_share": "of these, profiling",
    }
    lines = [f"| arm | {' | '.join(heads[name] for name in REPROFILED)} |", "|---|" + "---:|" * len(REPROFILED)]
    for arm, own in runs.groupby("arm", sort=False):
        found = {name: _mean(own[name], statistics) for name in REPROFILED}
        points = [_points(found[name]) for name in ("equal_steps", "equal_compute", "mean_compute")]
        cells = [*points, _span(found["flops"]) + "×", _span(found["profile_share"], percent=True)]
        lines.append(f"| {titles[arm]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def conclusion(over: pd.DataFrame, rule: Rule, arm: str, title: str) -> str:
    """What became of the first profile by the end of the arm's training, against what resampling does; Markdown."""
    step = max(step for name, step in over.index if name == arm)
    end, base = over.loc[(arm, step)], over.loc[(BASE, 0)]
    return (
        f"After {step} steps of {title} the rank correlation of {rule.samples} new samples a query with the first "
        f"profile is {_span(_of(end, 'spearman'))}; two profiles of the base policy itself agree at "
        f"{_span(_of(base, 'spearman'))}, and without sampling noise it would be {_span(_of(end, 'corrected'))}. "
        f"{_changes(end, base, 'class_changed', 'are in another class')}, and "
        f"{_changes(end, base, 'size_changed', 'would get another group size', False)}. "
        f"{_percent(end, 'dropped_wrongly')} were dropped or sub-sampled and would teach now "
        f"({_percent(base, 'dropped_wrongly')} by resampling alone), {_percent(end, 'kept_wrongly')} are kept though "
        f"all or none of the samples are right now ({_percent(base, 'kept_wrongly')}). {_moves(end, base)}"
    )


def reprofiling_conclusion(runs: pd.DataFrame, titles: Mapping[str, str], statistics: Statistics) -> str:
    """What re-profiling gains or loses, a sentence per arm."""
    if runs.empty:
        return "No arm profiles again here."
    sentences = []
    for arm, own in runs.groupby("arm", sort=False):
        found = {name: _mean(own[name], statistics) for name in REPROFILED}
        sentences.append(
            f"{titles[arm]} {_verdict(found['equal_steps'])} at equal steps ({_points(found['equal_steps'])} points) "
            f"and {_verdict(found['equal_compute'])} at equal FLOPs ({_points(found['equal_compute'])}), for "
            f"{_span(found['flops'])} times the FLOPs in all."
        )
    return " ".join(sentences)


def _changes(end: pd.Series, base: pd.Series, name: str, what: str, opening: bool = True) -> str:
    """A share, and whether it is more than what resampling changes, seed by seed."""
    low, high = end[f"{name}_excess_low"], end[f"{name}_excess_high"]
    word = (
        "against" if pd.isna(low) else "more than" if low > 0 else "fewer than" if high < 0 else "no clear change from"
    )
    subject = f"{_percent(end, name)} of the queries" if opening else _percent(end, name)
    return f"{subject} {what}, {word} the {_percent(base, name)} that resampling alone moves"


def _moves(end: pd.Series, base: pd.Series) -> str:
    return (
        f"From below ½ to above went {_percent(end, 'rose')}, from above to below {_percent(end, 'fell')} "
        f"({_percent(base, 'rose')} and {_percent(base, 'fell')} by resampling)."
    )


def _verdict(found: Span) -> str:
    _, low, high = found
    if pd.isna(low):
        return "is beside sGPO (too few seeds to say where)"
    return "ends higher" if low > 0 else "ends lower" if high < 0 else "is not told apart"


def _of(row: pd.Series, name: str) -> Span:
    return row[name], row[f"{name}_low"], row[f"{name}_high"]


def _mean(values: pd.Series, statistics: Statistics) -> Span:
    return mean_intervals({"": values.to_numpy(float)}, statistics)[""] if len(values) else (float("nan"),) * 3


def _percent(row: pd.Series, name: str) -> str:
    return _span(_of(row, name), percent=True)


def _span(found: Span, percent: bool = False) -> str:
    value, low, high = (number * (100 if percent else 1) for number in found)
    digits, unit = (1, "%") if percent else (2, "")
    if pd.isna(value):
        return "–"
    interval = "" if pd.isna(low) else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{value:.{digits}f}{unit}{interval}"


def _points(found: Span) -> str:
    value, low, high = (100 * number for number in found)
    return "–" if pd.isna(value) else f"{value:+.2f}" + ("" if pd.isna(low) else f" [{low:+.2f}, {high:+.2f}]")
