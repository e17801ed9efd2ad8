"""The parity of two engines in tables and in words, computed."""

from collections.abc import Mapping

import pandas as pd

from repro.experiments.parity import summary as study

POINTS = ("reward", "truncated", "groups_without_signal")  # measures that are shares, shown in points


def conclusion(batches: pd.DataFrame, found: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """Both halves in words."""
    agree = study.batches_agree(batches)
    text = (
        f"One training step on both engines: {int(agree.sum())} of {len(batches)} arms have the same plan, verdicts, "
        f"selected rollouts and tokens, the same weights, loss and gradients within {study.TOLERANCE:.0e} (largest: "
        f"{_small(batches['weight_difference'].max())}, {_small(batches['loss_difference'].max())}, "
        f"{_small(batches['gradient_error'].max())}) and move the policy alike within {study.STEP_TOLERANCE:.0e} "
        f"of the step ({_small(batches['step_error'].max())})."
    )
    for arm, rows in found.groupby("arm", sort=False):
        worst = rows.loc[rows["difference"].abs().idxmax()]
        p_value = rows["p_value"].iloc[0]
        text += (
            f" {titles[arm]} trained on both: at {int(rows['within'].sum())} of {len(rows)} evaluations the difference "
            f"lies within the seed-to-seed interval, it is largest after {worst['step']:.0f} steps "
            f"({100 * worst['difference']:+.1f} ± {100 * worst['half_width']:.1f} points), and of all ways to deal the "
            f"runs to two engines {p_value:.0%} lie at least as far apart."
        )
    return text


def batch_table(batches: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """Markdown: a row per arm of `repro.experiments.parity.batch.compare_batches`."""
    heads = ("arm", "trained on", "same choice", "tokens", "other", "weights", "loss", "gradients", "step")
    lines = ["| " + " | ".join(heads) + " |", "|---|---:|---|" + "---:|" * 6]
    for row in batches.itertuples():
        same = [
            word
            for word, held in {
                "plan": row.same_plan,
                "verdicts": row.same_verdicts and row.same_finished,
                "rollouts": row.same_rollouts,
            }.items()
            if not held
        ]
        found = (row.weight_difference, row.loss_difference, row.gradient_error, row.step_error)
        gaps = " | ".join(map(_small, found))
        other = "–" if pd.isna(row.other_tokens) else f"{row.other_tokens:.0f}"
        lines.append(
            f"| {titles[row.arm]} | {row.selected} of {row.rollouts} | {'other ' + ', '.join(same) if same else 'yes'} "
            f"| {row.tokens} | {other} | {gaps} |"
        )
    return "\n".join(lines) + "\n"


def refusals(reasons: Mapping[str, str], titles: Mapping[str, str]) -> str:
    """Markdown: the arms that verl's trainer refuses, and why; a sentence where there are none."""
    refused = {name: reason for name, reason in reasons.items() if reason}
    if not refused:
        return "verl's trainer takes every arm."
    listed = "\n".join(f"- {titles[name]}: {reason}." for name, reason in refused.items())
    count = f"{len(refused)} of {len(reasons)} arms"
    return f"verl's trainer refuses {count}, in a sentence and before anything runs:\n\n{listed}\n"


def curve_table(found: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """Markdown: a row per arm and step of `repro.experiments.parity.summary.curves`; accuracy in points."""
    heads = "arm | step | embedded engine | verl | difference | seed-to-seed interval | within"
    lines = [f"| {heads} |", "|---|---:|---:|---:|---:|---:|---|"]
    for row in found.itertuples():
        lines.append(
            f"| {titles[row.arm]} | {row.step} | {100 * row.embedded:.1f} | {100 * row.verl:.1f} "
            f"| {100 * row.difference:+.1f} | ±{100 * row.half_width:.1f} | {'yes' if row.within else 'no'} |"
        )
    tests = found.groupby("arm", sort=False)["p_value"].first()
    said = "; ".join(f"{titles[arm]}: p = {p_value:.2g}" for arm, p_value in tests.items())
    return "\n".join(lines) + f"\n\nExact permutation test of the whole curve: {said}.\n"


def during_table(during: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """Markdown: a row per arm and measure of `repro.experiments.parity.summary.during_training`."""
    heads = "arm | mean over training | embedded engine | verl | difference | seed-to-seed interval | p | p (Holm)"
    lines = [f"| {heads} |", "|---|---|---:|---:|---:|---:|---:|---:|"]
    for row in during.itertuples():
        scale, unit = (100, " (points)") if row.measure in POINTS else (1, "")
        values = [scale * value for value in (row.embedded, row.verl, row.difference, row.half_width)]
        cells = f"{values[0]:.4g} | {values[1]:.4g} | {values[2]:+.3g} | ±{values[3]:.3g}"
        label = f"{study.MEASURES[row.measure]}{unit}"
        lines.append(f"| {titles[row.arm]} | {label} | {cells} | {row.p_value:.2g} | {row.p_holm:.2g} |")
    return "\n".join(lines) + "\n"


def _small(value: float) -> str:
    return "–" if pd.isna(value) else "0" if value == 0 else f"{value:.0e}"
