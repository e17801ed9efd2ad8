"""The files of the study that other people read: data, figures, tables and metrics.json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from repro.experiments.results import tables
from repro.experiments.results.noise_floor import noise_floor
from repro.files import write_json, write_parquet, write_text
from repro.paths import FIGURES, ROOT, TABLES
from repro.plots.style import save as save_figure
from repro.settings import Settings
from repro.stats.runs import at_budgets


def save(
    output: str | Path,
    summary: pd.DataFrame,
    evaluations: pd.DataFrame,
    settings: Settings,
    figures: Mapping[str, Any],
    texts: Mapping[str, str] | None = None,
    frames: Mapping[str, pd.DataFrame] | None = None,
) -> None:
    """Data to `output`, the small things that the front page shows to figures/, tables/ and metrics.json.

    `texts` (Markdown) go to tables/<name>.md, `frames` to <output>/<name>.parquet. Nothing of it
    is made of seconds: it is a function of the data. Titles and groups are words, and stay in params.yaml.
    """
    folder = Path(output)
    write_parquet(summary.drop(columns=["title", "group"]), folder / "summary.parquet")
    for place in (folder, TABLES):  # tables/ is in git: the study's curves can be read without training anything
        write_parquet(evaluations, place / "evaluations.parquet")
    for name, frame in (frames or {}).items():
        write_parquet(frame, folder / f"{name}.parquet")
    # DVC's plots read no parquet
    write_text(curves(evaluations, summary).to_csv(index=False, float_format="%.6g"), TABLES / "curves.csv")
    for name, figure in figures.items():
        save_figure(figure, FIGURES / name)
    for name, text in {**_tables(summary, settings), **(texts or {})}.items():
        write_text(text.rstrip("\n") + "\n", TABLES / f"{name}.md")
    write_json(headlines(summary, evaluations, settings), ROOT / "metrics.json")


def curves(evaluations: pd.DataFrame, summary: pd.DataFrame) -> pd.DataFrame:
    """Mean curves at equal shares of the budget (repro.stats.runs.at_budgets): arm, group, share, step, trained_tokens,
    paper_tokens, total_tokens, flops, accuracy."""
    known = at_budgets(evaluations[evaluations["arm"].isin(summary["arm"])])
    known = known.assign(
        group=known["arm"].map(summary.set_index("arm")["group"]),
        total_tokens=known["generated_tokens"] + known["trained_tokens"],
    )
    shown = ["step", "trained_tokens", "paper_tokens", "total_tokens", "flops", "accuracy"]
    shown = [name for name in shown if name in known]
    return known.groupby(["arm", "group", "share"], sort=False)[shown].mean().reset_index()


def _tables(summary: pd.DataFrame, settings: Settings) -> dict[str, str]:
    levels = settings.statistics.levels
    shown = {
        "front": tables.front_table(summary, settings),
        "profiled": tables.profiled_table(summary, settings),
        "accuracy": tables.accuracy_table(summary),
        "harder": tables.harder_table(summary),
        "best": tables.best_table(summary),
        "pass": tables.pass_table(summary),
        **{axis: tables.ratio_table(summary, [axis], levels) for axis in tables.AXIS_NAMES},
    }
    return {name: tables.as_markdown(table) for name, table in shown.items()}


def headlines(summary: pd.DataFrame, evaluations: pd.DataFrame, settings: Settings) -> dict[str, Any]:
    """What DVC shows and compares between commits: {"of": what all figures are of, "baseline": how it ends,
    "difference": {arm: …} of the primaries, "arms": {outcome: how many, significantly}, "resolvable_difference": the
    least that these seeds can tell}; null where a figure is not known. See `summarise` for what each one is."""
    arms = summary.set_index("arm")
    base, others = arms.loc[settings.baseline], arms.drop(index=settings.baseline)
    shown = [arm for arm in settings.primaries if arm in others.index]
    level = round(100 * settings.statistics.levels[0])
    below = {axis: _clearly_below(others, f"{axis}_ratio_{level}") for axis in ("trained_tokens", "flops")}
    repeated = f"{settings.baseline}-again" in set(evaluations["arm"])
    noise = noise_floor(evaluations, settings).iloc[0]["resolvable_holm"] if repeated else None
    price = settings.evaluation.price
    return {
        "of": {
            "budget": f"{settings.engine.steps} steps",
            "rate": settings.engine.learning_rate,
            "measure": "temperature 1",
            "price": f"generation {price:.0%} of the bill" if price else "a FLOP is a FLOP",
        },
        "baseline": {
            "final_accuracy": _rounded(base["accuracy"]),
            "gain": _rounded(base["gain"]),
            "greedy": _rounded(base.get("greedy")),
        },
        "difference": {arm: _rounded(others.at[arm, "difference"]) for arm in shown},
        "arms": {
            "higher": int((others["resolved"] == "more").sum()),
            "lower": int((others["resolved"] == "less").sum()),
            **{f"fewer_{axis}": count for axis, count in below.items()},
        },
        "resolvable_difference": _rounded(noise),
    }


def _clearly_below(arms: pd.DataFrame, ratio: str) -> int:
    """How many arms reach the level at a cost whose interval lies wholly below the baseline's."""
    closed = arms[f"{ratio}_reached"] & ~arms[f"{ratio}_open"]
    return int((closed & (arms[f"{ratio}_high"] < 1)).sum())


def _rounded(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else round(float(value), 6)
