"""The results across arms: what they say, how sure one can be, and the files that other people read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from repro.experiments.results import tables
from repro.files import write_json, write_parquet, write_text
from repro.paths import FIGURES, ROOT, TABLES, TIMINGS
from repro.plots.style import save as save_figure
from repro.settings import Settings
from repro.stats.multiplicity import LEAST_SEEDS
from repro.stats.runs import TIMED

ENOUGH_SEEDS = 20  # from here on percentile bootstraps cover about what they say
CONTROL = "random-subset"


def conclusion(summary: pd.DataFrame, settings: Settings) -> str:
    """The comparison in sentences, every word of it from the table: who ends higher or lower, who is cheapest, how the
    random subset does, what diverged, and how far the intervals can be trusted."""
    rows = summary.set_index("arm")
    base, others = rows.loc[settings.baseline], rows.drop(index=settings.baseline)
    opening = (
        f"{base['title']} raises held-out accuracy by {base['gain']:.3f} "
        f"({_span(base, 'gain', '.3f')}{base['seeds']} seeds), to {base['accuracy']:.3f}."
    )
    if others.empty:
        return opening
    points = [_outcome(others, settings), *_cheapest(others, settings), _control(rows, settings), _lost(rows)]
    lines = [opening, "", *(f"- {point}" for point in points if point)]
    return "\n".join([*lines, "", caveat(settings)]).rstrip() + "\n"


def _outcome(others: pd.DataFrame, settings: Settings) -> str:
    """Final accuracy, after the correction."""
    alpha, title = 1 - settings.statistics.confidence, settings.arm(settings.baseline).title
    if others["seeds"].iloc[0] < LEAST_SEEDS:
        return f"**Final accuracy**: no claim from fewer than {LEAST_SEEDS} seeds."
    if (others["resolved"] == "not tested").all():
        return "**Final accuracy**: this table lacks some of the declared arms, so nothing is tested here."
    tested = others[others["resolved"] != "not tested"]
    found = []
    for word, ascending in (("more", False), ("less", True)):
        chosen = tested[tested["resolved"] == word].sort_values("difference", ascending=ascending)
        names = ", ".join(f"{row['title']} {row['difference']:+.3f}" for _, row in chosen.iterrows())
        found.append(f"{len(chosen)} end {'higher' if word == 'more' else 'lower'}" + (f" ({names})" if names else ""))
    unresolved = tested[tested["resolved"] == "not resolved"]
    seen = int(((unresolved["difference_low"] > 0) | (unresolved["difference_high"] < 0)).sum())
    return (
        f"**Final accuracy**: of {len(tested)} arms held to {title}, {found[0]} and {found[1]} at p < {alpha:.2g} "
        f"after Holm's correction; {len(unresolved)} are not resolved, though the uncorrected interval of {seen} of "
        "these leaves out 0."
    )


def _cheapest(others: pd.DataFrame, settings: Settings) -> list[str]:
    """The three lowest ratios on each axis that does not depend on the machine."""
    level, title = settings.statistics.levels[0], settings.arm(settings.baseline).title
    lines = []
    for axis in ("trained_tokens", "total_tokens", "flops"):
        name = f"{axis}_ratio_{round(100 * level)}"
        if others[name].isna().all():
            return [f"**Cost**: undefined, since {title} did not rise."]
        reached = others[others[f"{name}_reached"]].sort_values(name)
        best = "; ".join(f"{row['title']} {tables.ratio(row, name)}" for _, row in reached.head(3).iterrows())
        below = int(((reached[f"{name}_high"] < 1) & ~reached[f"{name}_open"]).sum())
        label = tables.AXIS_NAMES[axis][0].upper() + tables.AXIS_NAMES[axis][1:]
        lines.append(
            f"**{label}** to {level:.0%} of {title}'s rise, relative to {title}: "
            f"{f'lowest for {best}' if best else 'no arm gets there'}; {len(reached)} of {len(others)} get there, "
            f"{below} with an interval wholly below 1 (not corrected for their number)."
        )
    return lines


def _control(rows: pd.DataFrame, settings: Settings) -> str:
    """The random subset, the control that tells which from how many."""
    if CONTROL not in rows.index or settings.baseline == CONTROL:
        return ""
    row, others = rows.loc[CONTROL], rows.drop(index=[settings.baseline, CONTROL])
    level = settings.statistics.levels[0]
    name = f"trained_tokens_ratio_{round(100 * level)}"
    if pd.isna(row[name]):
        return ""
    ahead = others[others[f"{name}_reached"]]
    fewer = int((ahead[name] < row[name]).sum())  # of a control that never got there, fewer than it spent in vain
    clearly = int(((ahead[f"{name}_high"] < row[f"{name}_low"]) & ~ahead[f"{name}_open"]).sum())
    return (
        f"**{row['title']}**, the control, ends {row['difference']:+.3f} ({_span(row, 'difference', '+.3f')}"
        f"{row['resolved']}) and needs {tables.ratio(row, name)} of the trained tokens to {level:.0%} of the rise; "
        f"{fewer} of the {len(others)} other arms need fewer, {clearly} with intervals that do not overlap."
    )


def _lost(rows: pd.DataFrame) -> str:
    """Runs that diverged or collapsed."""
    runs = int(rows["seeds"].sum())
    parts = []
    for name in ("diverged", "collapsed"):
        hit = rows[rows[name] > 0]
        where = ", ".join(f"{row['title']} {row[name]}" for _, row in hit.iterrows())
        parts.append(f"{int(hit[name].sum())} {name}" + (f" ({where})" if where else ""))
    return f"**Of {runs} runs** {parts[0]} and {parts[1]}; every one of them is in the means."


def caveat(settings: Settings) -> str:
    """How far the intervals can be trusted; empty with seeds enough."""
    seeds = len(settings.seeds)
    if seeds >= ENOUGH_SEEDS:
        return ""
    return (
        f"Intervals are {settings.statistics.confidence:.0%} percentile bootstraps over {seeds} seeds; with so few "
        "they are too narrow (five cover about 80 to 85%): read them as direction and size, and the corrected p-values "
        "as significance. They are over training runs alone, all from one base policy and one set of queries. The "
        "lowest of many ratios is lowest partly by luck."
    )


def precision(questions: pd.DataFrame, evaluations: pd.DataFrame, settings: Settings) -> str:
    """How finely the final evaluation tells arms apart: its own standard error, and the paired one that counts."""
    own = questions[questions["arm"].isin(settings.compared_arms)]
    rates = own["successes"] / own["samples"]
    samples, queries, seeds = int(own["samples"].min()), own["query"].nunique(), own["seed"].nunique()
    within = rates * (1 - rates) / np.maximum(own["samples"] - 1, 1)
    noise = float(np.sqrt(within.groupby([own["arm"], own["seed"]]).sum().mean()) / queries)
    runs = evaluations[evaluations["arm"].isin(settings.compared_arms)].sort_values("step")
    last = runs.groupby(["arm", "seed"])["accuracy"].last().unstack("seed")
    others = last.drop(index=settings.baseline)
    text = (
        f"The final evaluation draws {samples} samples of {queries} held-out queries, the same queries for every run: "
        f"sampling alone gives one run's accuracy a standard error of {noise:.4f}, and the difference of two arms over "
        f"{seeds} seeds one of {noise * np.sqrt(2 / seeds):.4f}. "
    )
    if len(others) and seeds > 1:
        paired = (others - last.loc[settings.baseline]).std(axis=1, ddof=1) / np.sqrt(seeds)
        title = {arm: settings.arms[arm].title for arm in paired.index}
        text += (
            "With the variation between training runs, the standard error of the paired difference is "
            f"{paired.median():.4f} for the median arm, from {paired.min():.4f} ({title[paired.idxmin()]}) to "
            f"{paired.max():.4f} ({title[paired.idxmax()]})."
        )
    return text.strip()


def save(
    output: str | Path,
    summary: pd.DataFrame,
    evaluations: pd.DataFrame,
    settings: Settings,
    figures: Mapping[str, Any],
    texts: Mapping[str, str] | None = None,
    frames: Mapping[str, pd.DataFrame] | None = None,
    timings: str | Path | None = None,
) -> None:
    """Data to `output`, the small things that the front page shows to figures/, tables/ and metrics.json.

    `texts` (Markdown) go to tables/<name>.md, `frames` to <output>/<name>.parquet. What is made of seconds differs at
    every run, so it goes to `timings` (timings/study) and nowhere else: the rest is a function of the data alone.
    """
    folder, timed = Path(output), Path(timings or TIMINGS / "study")
    clocked = [name for name in summary if name.startswith(("seconds_", "speedup_"))]
    measured = evaluations.drop(columns=[name for name in TIMED if name in evaluations])
    write_parquet(summary.drop(columns=clocked), folder / "summary.parquet")
    write_parquet(measured, folder / "evaluations.parquet")
    for name, frame in (frames or {}).items():
        write_parquet(frame, folder / f"{name}.parquet")
    write_text(curves(measured, summary).to_csv(index=False), folder / "curves.csv")
    for name, figure in figures.items():
        save_figure(figure, FIGURES / name)
    texts = {**_tables(summary, settings), "conclusion": conclusion(summary, settings), **(texts or {})}
    for name, text in texts.items():
        write_text(text.rstrip("\n") + "\n", TABLES / f"{name}.md")
    write_json(metrics(summary, settings), ROOT / "metrics.json")
    if clocked:
        write_parquet(summary[["arm", *clocked]], timed / "summary.parquet")
        write_text(tables.speedup_table(summary, settings.statistics.levels), timed / "speedup.md")


def curves(evaluations: pd.DataFrame, summary: pd.DataFrame) -> pd.DataFrame:
    """Mean curves: arm, group, step, trained_tokens, total_tokens, flops, accuracy."""
    known = evaluations[evaluations["arm"].isin(summary["arm"])]
    known = known.assign(
        group=known["arm"].map(summary.set_index("arm")["group"]),
        total_tokens=known["generated_tokens"] + known["trained_tokens"],
    )
    shown = ["trained_tokens", "total_tokens", "flops", "accuracy"]
    return known.groupby(["arm", "group", "step"], sort=False)[shown].mean().reset_index()


def metrics(summary: pd.DataFrame, settings: Settings) -> dict[str, dict[str, float | None]]:
    """{arm: {figure: value}}: accuracy, difference, best and cost ratios at the first level, each with _low and _high;
    null where undefined, and where a ratio would be but a lower bound (see `efficiency.cost_ratios`)."""
    level = round(100 * settings.statistics.levels[0])
    names = ["accuracy", "difference", "best", *(f"{axis}_ratio_{level}" for axis in ("trained_tokens", "flops"))]
    return {
        row["arm"]: {key: value for name in names for key, value in _stated(row, name).items()}
        for row in summary.to_dict("records")
    }


def _stated(row: Mapping[str, Any], name: str) -> dict[str, float | None]:
    """One figure with its ends; see `metrics`."""
    reached, is_open = row.get(f"{name}_reached", True), row.get(f"{name}_open", False)
    known = {"": reached, "_low": reached, "_high": reached and not is_open}
    keys = {f"{name}{end}": is_known for end, is_known in known.items()}
    return {key: round(row[key], 6) if is_known and not pd.isna(row[key]) else None for key, is_known in keys.items()}


def _tables(summary: pd.DataFrame, settings: Settings) -> dict[str, str]:
    levels = settings.statistics.levels
    return {
        "front": tables.front_table(summary, settings),
        "profiled": tables.profiled_table(summary, settings),
        "accuracy": tables.accuracy_table(summary),
        "best": tables.best_table(summary),
        "pass": tables.pass_table(summary),
        **{axis: tables.ratio_table(summary, axis, levels) for axis in ("trained_tokens", "total_tokens", "flops")},
    }


def _span(row: pd.Series, name: str, form: str) -> str:
    """`0.280 to 0.297, `; nothing where there is no interval."""
    if pd.isna(row[f"{name}_low"]):
        return ""
    return f"{row[f'{name}_low']:{form}} to {row[f'{name}_high']:{form}}, "
