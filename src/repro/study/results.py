"""The results across arms: what they say, how sure one can be, and the files that other people read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from repro.files import write_json, write_parquet, write_text
from repro.paths import FIGURES, ROOT, TABLES
from repro.plots.style import save as save_figure
from repro.settings import Settings
from repro.study.runs import TIMED
from repro.study.tables import accuracy_table, ratio, ratio_table


def conclusion(summary: pd.DataFrame, evaluations: pd.DataFrame, settings: Settings) -> str:
    """The comparison in sentences, from the table. A difference is called resolved when its interval leaves out 0 and
    there are at least five seeds; the percentile bootstrap of five covers about 80 to 85%, which the text says."""
    rows = summary.set_index("arm")
    base = rows.loc[settings.baseline]
    seeds = len(settings.seeds)
    lines = [
        f"{settings.arm(settings.baseline).title} raises held-out accuracy by {base['gain']:.3f} "
        f"({base['gain_low']:.3f} to {base['gain_high']:.3f}, {seeds} seeds), to {base['accuracy']:.3f}."
    ]
    level = settings.statistics.levels[0]
    name = f"trained_tokens_ratio_{round(100 * level)}"
    tokens = evaluations.groupby(["arm", "seed"])["trained_tokens"].max().groupby("arm").mean()
    for arm in rows.index.drop(settings.baseline):
        row = rows.loc[arm]
        low, high = row["difference_low"], row["difference_high"]
        verdict = "not resolved" if low <= 0 <= high or seeds < 5 else "more" if low > 0 else "less"
        lines.append(
            f"- **{settings.arms[arm].title}**: {row['difference']:+.3f} at the end "
            f"({low:+.3f} to {high:+.3f}: {verdict}); trained tokens to {level:.0%} of the baseline's rise, relative "
            f"to the baseline: {ratio(row, name)}; in all, {tokens[arm] / tokens[settings.baseline]:.2f} times as many."
        )
    caveat = (
        f"Intervals are {settings.statistics.confidence:.0%} percentile bootstraps over {seeds} seeds; with so few "
        "they are too narrow (five cover about 80 to 85%): read them as direction and size, not as significance."
    )
    return "\n".join([lines[0], "", *lines[1:], "", *([caveat] if seeds < 20 else [])])


def precision(questions: pd.DataFrame, evaluations: pd.DataFrame, settings: Settings) -> str:
    """How finely the final evaluation tells arms apart: its own standard error, and the paired one that counts."""
    per_run = questions.assign(rate=questions["successes"] / questions["samples"])
    samples = int(questions["samples"].iloc[0])
    queries = questions["query"].nunique()
    within = per_run["rate"] * (1 - per_run["rate"]) / np.maximum(per_run["samples"] - 1, 1)
    noise = float(np.sqrt(within.groupby([per_run["arm"], per_run["seed"]]).sum().mean()) / queries)
    seeds = len(settings.seeds)
    last = evaluations.sort_values("step").groupby(["arm", "seed"])["accuracy"].last().unstack("seed")
    others = last.drop(index=settings.baseline)
    paired = (others - last.loc[settings.baseline]).std(axis=1, ddof=1) / np.sqrt(seeds)
    text = (
        f"The final evaluation draws {samples} samples of {queries} held-out queries, the same queries for every run: "
        f"sampling alone gives one run's accuracy a standard error of {noise:.4f}, and the difference of two arms over "
        f"{seeds} seeds one of {noise * np.sqrt(2 / seeds):.4f}. "
    )
    if len(others) and seeds > 1:
        spread = "; ".join(f"{settings.arms[arm].title} {value:.4f}" for arm, value in paired.items())
        text += f"With the variation between training runs, the standard error of the paired difference is: {spread}."
    return text


def save(
    output: str,
    summary: pd.DataFrame,
    evaluations: pd.DataFrame,
    titles: Mapping[str, str],
    settings: Settings,
    figures: Mapping[str, Any],
) -> None:
    """Data to `output`, the small things that the front page shows to figures/, tables/ and metrics.json."""
    folder = Path(output)
    measured = evaluations.drop(columns=list(TIMED))
    write_parquet(summary, folder / "summary.parquet")
    write_parquet(measured, folder / "evaluations.parquet")
    curves = measured.groupby(["arm", "step"], sort=False)[["trained_tokens", "flops", "accuracy"]].mean().reset_index()
    write_text(curves.to_csv(index=False), folder / "curves.csv")
    for name, figure in figures.items():
        save_figure(figure, FIGURES / name)
    write_text(conclusion(summary, evaluations, settings) + "\n", TABLES / "conclusion.md")
    write_text(accuracy_table(summary, titles), TABLES / "accuracy.md")
    for axis in ("trained_tokens", "flops"):
        write_text(ratio_table(summary, titles, axis, settings.statistics.levels), TABLES / f"{axis}.md")
    level = f"trained_tokens_ratio_{round(100 * settings.statistics.levels[0])}"
    kept = ["accuracy", "gain", "difference", level]
    metrics = {
        row["arm"]: {name: None if pd.isna(row[name]) else round(row[name], 6) for name in kept}
        for row in summary.to_dict("records")
    }
    write_json(metrics, ROOT / "metrics.json")
