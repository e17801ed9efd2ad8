"""The regimes in words and tables: does the ranking change with the queries, and does choosing beat chance?"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from repro.files import write_parquet, write_text
from repro.settings import Settings
from repro.study.mixes import DEFAULT, titles
from repro.study.regimes import MEASURES, Pairs, agreement, outcomes, paired, reversals
from repro.study.tables import number, ratio

CONTROL, SUBSET = "random-subset", "d3s"  # chosen blindly; chosen for the variance of their rewards


def conclusion(evaluations: pd.DataFrame, table: pd.DataFrame, settings: Settings) -> str:
    """Markdown, computed: does the ranking change with the mix, and where does a random subset do as well as D³S?"""
    arms, names, confidence = settings.regimes.arms, titles(settings), settings.statistics.confidence
    lines = []
    for measure, of_mix in outcomes(evaluations, arms).items():
        pairs = paired(of_mix, confidence)
        lines.append(f"- **{MEASURES[measure].capitalize()}**: {_ranking(of_mix, pairs, measure, table, settings)}")
        if {CONTROL, SUBSET} <= set(arms):
            lines.append(
                f"- **{MEASURES[measure].capitalize()}, is choosing better than chance?** "
                f"{_choice(pairs, arms, settings)}"
            )
    steps = table.loc[table["arm"] == settings.baseline].set_index("mix")["budget_step"]
    seeds = table.groupby("mix", sort=False)["seeds"].first()
    counts = ", ".join(f"{seeds[mix]} on ‘{names[mix]}’" for mix in seeds.index)
    spent = " to ".join(dict.fromkeys(f"{step:.0f}" for step in (steps.min(), steps.max())))
    return "\n".join(
        [
            *lines,
            "",
            f"Seeds: {counts}. Intervals of differences are {confidence:.0%} Student-t, their variance pooled over the "
            f"mixes; each stands by itself, so where nothing differs about one in {round(1 / (1 - confidence))} leaves "
            "out 0. The equal number of trained tokens is what the thriftiest arm trains on in all; "
            f"{settings.arms[settings.baseline].title} has spent it after {spent} steps.",
        ]
    )


def _ranking(
    of_mix: Mapping[str, np.ndarray], pairs: Mapping[str, Pairs], measure: str, table: pd.DataFrame, settings: Settings
) -> str:
    """How far the rankings agree, which pairs turn round, which differences to the baseline are resolved."""
    arms, names = settings.regimes.arms, titles(settings)
    taus = agreement(of_mix, settings.statistics)
    same, between = (taus[(taus["mix"] == taus["other"]) == own] for own in (True, False))
    turned = [
        f"{settings.arms[a].title} is above {settings.arms[b].title} on {_list(above, names)} and below on "
        f"{_list(below, names)}"
        for a, b, above, below in reversals(pairs, arms)
    ]
    verdicts = table.loc[table["arm"] != settings.baseline, f"resolved_{measure}"]
    text = (
        f"Between two mixes the rankings agree with Kendall's τ from {between['tau'].min():+.2f} to "
        f"{between['tau'].max():+.2f} (mean {between['tau'].mean():+.2f}; over resampled seeds "
        f"{between['resampled'].mean():+.2f}, where a repetition on the same mix would get at best "
        f"{same['resampled'].mean():+.2f}). "
        if len(of_mix) > 1
        else ""
    )
    text += (
        f"{'; '.join(turned)}. "
        if turned
        else "No pair of arms is resolved one way on one mix and the other way on another. "
    )
    return (
        f"{text}Of {len(verdicts)} differences to {settings.arms[settings.baseline].title}, "
        f"{(verdicts == 'more').sum()} are resolved as more and {(verdicts == 'less').sum()} as less (Holm's "
        "correction over arms and mixes)."
    )


def _choice(pairs: Mapping[str, Pairs], arms: list[str], settings: Settings) -> str:
    """D³S against the random subset on every mix: a verdict by the interval, and how much the interval leaves open."""
    i, j = arms.index(SUBSET), arms.index(CONTROL)
    subset, control, names = settings.arms[SUBSET].title, settings.arms[CONTROL].title, titles(settings)
    found: dict[str, list[str]] = {}
    for mix, own in pairs.items():
        low, high = own.low_A_A[i, j], own.high_A_A[i, j]
        verdict = f"{subset} is above" if low > 0 else f"{subset} is below" if high < 0 else "No difference is seen"
        found.setdefault(verdict, []).append(f"{names[mix]} ({own.mean_A_A[i, j]:+.3f}, {low:+.3f} to {high:+.3f})")
    sentences = " ".join(f"{verdict} on: {'; '.join(where)}." for verdict, where in found.items())
    return f"{subset} less {control}. {sentences}"


def _list(mixes: list[str], names: Mapping[str, str]) -> str:
    return " and ".join(f"‘{names[mix]}’" for mix in mixes)


def regimes_table(table: pd.DataFrame, settings: Settings) -> str:
    """`compare`'s table as Markdown."""
    level = settings.statistics.levels[0]
    name = f"trained_tokens_ratio_{round(100 * level)}"
    heads = ["mix", "arm", "final accuracy", "difference, equal steps", "difference, equal trained tokens"]
    heads += ["rank (steps, tokens)", f"trained tokens to {level:.0%} of the rise"]
    lines = ["| " + " | ".join(heads) + " |", "|---|---|" + "---:|" * (len(heads) - 2)]
    for mix, rows in table.groupby("mix", sort=False):
        for place, (_, row) in enumerate(rows.iterrows()):
            baseline = row["arm"] == settings.baseline
            differences = [
                "–" if baseline else number(row, f"difference_{measure}", 3, signed=True) for measure in MEASURES
            ]
            ranks = ", ".join(str(row[f"rank_{measure}"]) for measure in MEASURES)
            cells = [titles(settings)[mix] if place == 0 else "", row["title"], f"{row['accuracy_steps']:.3f}"]
            lines.append("| " + " | ".join([*cells, *differences, ranks, "1" if baseline else ratio(row, name)]) + " |")
    return "\n".join(lines) + "\n"


def shares_list(settings: Settings) -> str:
    """Markdown: the families of every mix with their shares, and what it is meant to be."""
    mixes = {DEFAULT: (None, {name: family.share for name, family in settings.task.families.items()})}
    mixes |= {name: (mix.about, mix.shares) for name, mix in settings.regimes.mixes.items()}
    lines = []
    for mix, (about, shares) in mixes.items():
        families = ", ".join(f"{family} {share:.0%}" for family, share in shares.items() if share)
        lines.append(f"- **{titles(settings)[mix]}**: {about + ' ' if about else ''}({families})")
    return "\n".join(lines) + "\n"


def agreement_table(evaluations: pd.DataFrame, settings: Settings) -> str:
    """Kendall's τ between every two mixes as Markdown: as measured, and its interval over resampled seeds."""
    values, names = outcomes(evaluations, settings.regimes.arms), titles(settings)
    tables = [agreement(of_mix, settings.statistics) for of_mix in values.values()]
    lines = [
        "| mix | and mix | " + " | ".join(f"τ {words}" for words in MEASURES.values()) + " |",
        "|---|---|---:|---:|",
    ]
    for rows in zip(*(table.to_dict("records") for table in tables), strict=True):
        cells = [f"{row['tau']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}]" for row in rows]
        if rows[0]["mix"] == rows[0]["other"]:  # the estimate is 1 by construction
            cells = [f"repeated: at best {row['resampled']:+.2f}" for row in rows]
        other = "itself" if rows[0]["mix"] == rows[0]["other"] else names[rows[0]["other"]]
        lines.append("| " + " | ".join([names[rows[0]["mix"]], other, *cells]) + " |")
    return "\n".join(lines) + "\n"


def save(output: str, mixes: pd.DataFrame, table: pd.DataFrame, evaluations: pd.DataFrame, settings: Settings) -> None:
    """mixes, comparison and agreement as parquet, the conclusion as Markdown, into the folder `output`."""
    folder, taus = Path(output), []
    for measure, of_mix in outcomes(evaluations, settings.regimes.arms).items():
        taus.append(agreement(of_mix, settings.statistics).assign(measure=measure))
    write_parquet(mixes, folder / "mixes.parquet")
    write_parquet(table, folder / "summary.parquet")
    write_parquet(pd.concat(taus, ignore_index=True), folder / "agreement.parquet")
    write_text(conclusion(evaluations, table, settings) + "\n", folder / "conclusion.md")
