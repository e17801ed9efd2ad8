"""The regimes in words and tables: does the ranking change with the queries, and does choosing beat chance?"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from repro.experiments.regimes.mixes import DEFAULT, titles
from repro.experiments.regimes.summary import MEASURES, Pairs, agreement, outcomes, paired, reversals
from repro.experiments.results.tables import number, ratio
from repro.files import write_parquet, write_text
from repro.settings import Settings

# (chosen for variance, chosen blindly): of these the pairs among `regimes.arms` are compared. D¹S-C and its control
# keep as many rollouts; D³S and the random subset differ in their number too.
PAIRS = (("d1s-c", "random-quarter"), ("d3s", "random-subset"))
QUARTERS, CHANCE = ("d1s", "d1s-c", "pods"), "random-quarter"  # arms that keep as many rollouts of each batch


def conclusion(evaluations: pd.DataFrame, table: pd.DataFrame, settings: Settings) -> str:
    """Markdown, computed: does the ranking change with the mix, and where does choosing for variance beat chance?"""
    arms, names, confidence = settings.regimes.arms, titles(settings), settings.statistics.confidence
    lines = []
    for measure, of_mix in outcomes(evaluations, arms).items():
        pairs = paired(of_mix, confidence)
        lines.append(f"- **{MEASURES[measure].capitalize()}**: {_ranking(of_mix, pairs, measure, table, settings)}")
        for subset, control in (pair for pair in PAIRS if set(pair) <= set(arms)):
            lines.append(
                f"- **{MEASURES[measure].capitalize()}, is choosing better than chance?** "
                f"{_choice(subset, control, pairs, settings)}"
            )
            lines[-1] += _confounded(subset, control, evaluations, settings) if measure == "steps" else ""
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
    repeated = (
        f"; over resampled seeds {between['resampled'].mean():+.2f}, where a repetition on the same mix would get at "
        f"best {same['resampled'].mean():+.2f}"
        if between["resampled"].notna().any()  # not where seeds are single
        else ""
    )
    text = (
        f"Between two mixes the rankings agree with Kendall's τ from {between['tau'].min():+.2f} to "
        f"{between['tau'].max():+.2f} (mean {between['tau'].mean():+.2f}{repeated}). "
        if len(of_mix) > 1
        else ""
    )
    text += (
        f"{'; '.join(turned)}, by intervals not corrected for the number of pairs. "
        if turned
        else "No pair of arms has an interval above 0 on one mix and below 0 on another. "
    )
    return (
        f"{text}Of {len(verdicts)} differences to {settings.arms[settings.baseline].title}, "
        f"{(verdicts == 'more').sum()} are resolved as more and {(verdicts == 'less').sum()} as less (Holm's "
        "correction over arms and mixes)."
    )


def against_chance(evaluations: pd.DataFrame, settings: Settings) -> str:
    """Markdown, computed, of the study's own runs: the quarters of greatest variance against one chosen blindly; empty
    where there is no such control."""
    arms = [arm for arm in (*QUARTERS, CHANCE) if arm in set(evaluations["arm"])]
    if CHANCE not in arms or len(arms) == 1:
        return ""
    own, confidence = evaluations[evaluations["arm"].isin(arms)].assign(mix=DEFAULT), settings.statistics.confidence
    parts, seeds = [], own["seed"].nunique()
    for measure, of_mix in outcomes(own, arms).items():
        pairs = paired(of_mix, confidence)[DEFAULT]
        found = []
        for place, arm in enumerate(arms[:-1]):
            mean, low, high = (ends[place, -1] for ends in (pairs.mean_A_A, pairs.low_A_A, pairs.high_A_A))
            interval = "" if np.isnan(low) else f" ({low:+.3f} to {high:+.3f})"
            found.append(f"{settings.arms[arm].title} {mean:+.3f}{interval}")
        parts.append(f"{MEASURES[measure]} {', '.join(found)}")
    intervals = f"{confidence:.0%} Student-t intervals over {seeds} pairs of seeds, each for itself"
    return (
        f"**Does choosing for variance beat chance?** On {titles(settings)[DEFAULT]}, held-out accuracy less that of "
        f"{settings.arms[CHANCE].title}, which keeps as many rollouts: {'; '.join(parts)}. "
        f"{intervals if seeds > 1 else 'One seed, so no interval'}.\n"
    )


def _choice(chosen: str, blind: str, pairs: Mapping[str, Pairs], settings: Settings) -> str:
    """One arm against its control on every mix: a verdict by the interval, and how much the interval leaves open."""
    i, j = settings.regimes.arms.index(chosen), settings.regimes.arms.index(blind)
    subset, control, names = settings.arms[chosen].title, settings.arms[blind].title, titles(settings)
    found: dict[str, list[str]] = {}
    for mix, own in pairs.items():
        low, high = own.low_A_A[i, j], own.high_A_A[i, j]
        if np.isnan(low):
            found.setdefault("Single seeds tell nothing", []).append(f"{names[mix]} ({own.mean_A_A[i, j]:+.3f})")
            continue
        verdict = f"{subset} is above" if low > 0 else f"{subset} is below" if high < 0 else "No difference is seen"
        found.setdefault(verdict, []).append(f"{names[mix]} ({own.mean_A_A[i, j]:+.3f}, {low:+.3f} to {high:+.3f})")
    sentences = " ".join(f"{verdict} on: {'; '.join(where)}." for verdict, where in found.items())
    return f"{subset} less {control}. {sentences}"


def _confounded(chosen: str, blind: str, evaluations: pd.DataFrame, settings: Settings) -> str:
    """What differs between the two besides which rollouts train: how many tokens, and how their losses add up."""
    (subset, control), final = (settings.arms[chosen], settings.arms[blind]), evaluations.sort_values("step")
    spent = final.groupby(["mix", "arm", "seed"])["trained_tokens"].last().groupby(["mix", "arm"]).mean().unstack("arm")
    shares = dict.fromkeys(f"{share:.2f}" for share in (spent[chosen] / spent[blind]).agg(["min", "max"]))
    text = f" In as many steps {subset.title} trains on {' to '.join(shares)} times the tokens of {control.title}"
    if subset.aggregation != control.aggregation:
        text += f", and its loss is a {subset.aggregation}, not a {control.aggregation}: not the choice alone differs"
    return f"{text}."


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
        single = any(np.isnan(row["low"]) for row in rows)  # seeds, which cannot be resampled
        cells = [f"{row['tau']:+.2f}" + ("" if single else f" [{row['low']:+.2f}, {row['high']:+.2f}]") for row in rows]
        if rows[0]["mix"] == rows[0]["other"]:  # the estimate is 1 by construction
            cells = ["–" if single else f"repeated: at best {row['resampled']:+.2f}" for row in rows]
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
