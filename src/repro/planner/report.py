"""The plan in tables and sentences."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from repro.files import write_json, write_parquet
from repro.paper_scale import SCALES, PaperScale
from repro.planner.assumptions import Assumptions


def conclusion(plan: pd.DataFrame, checked: pd.DataFrame, baseline: str, title: str) -> str:
    """What to take away, every number computed. `plan`: repro.planner.target.to_target's."""
    base = plan[plan["arm"] == baseline]
    cheap, dear = (base.loc[base["gpu_hours"].agg(pick)] for pick in ("idxmin", "idxmax"))
    others = plan[plan["arm"] != baseline]
    train, generate = base["hours_train"] / base["hours"], base["hours_generate"] / base["hours"]
    least, most = (others.loc[others["hours_ratio"].agg(pick)] for pick in ("idxmin", "idxmax"))
    lines = [
        f"- **{title}** takes {cheap['gpu_hours']:,.0f} ({cheap['scale']}) to {dear['gpu_hours']:,.0f} GPU-hours "
        f"({dear['scale']}): {_range(generate)} of them generate, {_range(train)} train. A sampler that chooses among "
        "finished rollouts can save at most its part of the latter.",
        f"- **A run of as many steps** takes from {least['hours_ratio']:.2f} ({least['arm']} at {least['scale']}) to "
        f"{most['hours_ratio']:.2f} times ({most['arm']} at {most['scale']}) the hours of {title}'s.",
    ]
    if len(checked):
        told = "; ".join(
            f"{row['arm']} at {row['scale']}: {row['hours']:.0f} h, where the paper says {row['paper_hours']:.0f} h"
            for _, row in checked.iterrows()
        )
        lines.append(f"- **Held against the papers' durations**: {told}.")
        pair = checked.pivot(index="scale", columns="arm", values=["hours", "paper_hours"])
        if {"grpo", "zvf"} <= set(checked["arm"]):
            ratio = (pair["hours"]["zvf"] / pair["hours"]["grpo"]).dropna()
            stated = (pair["paper_hours"]["zvf"] / pair["paper_hours"]["grpo"]).dropna()
            lines.append(
                f"- **ZVF over GRPO**, in which most assumptions cancel: {ratio.iloc[0]:.2f} times the hours; the "
                f"paper's are {stated.iloc[0]:.2f}; the rest hangs on how many groups have no signal, of which the "
                "embedded study's queries are no measure for the paper's."
            )
    return "\n".join(lines)


def baseline_table(plan: pd.DataFrame, baseline: str) -> str:
    """The baseline at every scale: tokens, FLOPs, hours by phase, memory."""
    head = (
        "| scale | steps | mean response | generated tokens | trained tokens | FLOPs | hours: generate + score + "
        "train + other | hours | GPU-hours | GB a GPU, training |"
    )
    rows = []
    for _, row in plan[plan["arm"] == baseline].iterrows():
        phases = " + ".join(f"{row[f'hours_{phase}']:.1f}" for phase in ("generate", "score", "train", "other"))
        rows.append(
            f"| {row['scale']} | {row['steps']} | {row['response_tokens']:.0f} | {row['generated_tokens']:.2e} | "
            f"{row['trained_tokens']:.2e} | {row['flops']:.2e} | {phases} | {row['hours']:.1f} | "
            f"{row['gpu_hours']:,.0f} | {row['memory_train']:.0f} |"
        )
    return "\n".join([head, "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|", *rows])


def checks_table(
    checked: pd.DataFrame, lengths: Mapping[tuple[str, str], float], scales: Mapping[str, PaperScale] = SCALES
) -> str:
    """Predicted hours beside the papers', and at how many GPUs (hours fall as their number rises), or at which mean
    response, they would agree."""
    head = (
        "| scale | arm | predicted, hours | paper, hours | predicted / paper | GPUs at which both agree | mean "
        "response at which both agree | where |"
    )
    rows = []
    for _, row in checked.iterrows():
        tokens = lengths.get((row["scale"], row["arm"]), float("nan"))
        limit = scales[row["scale"]].max_response_tokens.value
        agree = f"{tokens:.0f} of {limit} tokens" if tokens == tokens else "none of those tried"
        rows.append(
            f"| {row['scale']} | {row['arm']} | {row['hours']:.1f} | {row['paper_hours']:.0f} | {row['share']:.2f} | "
            f"{row['share'] * scales[row['scale']].gpus:.1f} of {scales[row['scale']].gpus} | {agree} | "
            f"{row['where']} |"
        )
    return "\n".join([head, "|---|---|---:|---:|---:|---:|---:|---|", *rows])


def arms_table(plan: pd.DataFrame, scale: str, titles: Mapping[str, str]) -> str:
    """Every arm at one scale. `plan`: repro.planner.target.to_target's."""
    head = (
        "| arm | GPU-hours | generated tokens | trained tokens | FLOPs, ratio | hours of a run, ratio | steps to the "
        "target, embedded study | hours to the target, ratio |"
    )
    rows = []
    for _, row in plan[plan["scale"] == scale].iterrows():
        rows.append(
            f"| {titles[row['arm']]} | {row['gpu_hours']:,.0f} | {row['generated_tokens']:.2e} | "
            f"{row['trained_tokens']:.2e} | {row['flops_ratio']:.2f} | {row['hours_ratio']:.2f} | "
            f"{_ratio(row, 'steps_ratio')} | {_ratio(row, 'target_ratio')} |"
        )
    return "\n".join([head, "|---|---:|---:|---:|---:|---:|---:|---:|", *rows])


def savings_table(plan: pd.DataFrame, titles: Mapping[str, str], scales: Mapping[str, PaperScale] = SCALES) -> str:
    """What the papers say that their samplers save, beside the prediction for the same pair of arms: of one run, and to
    the target with the embedded study's ratio of steps."""
    head = "| scale | arm | against | of | paper | a run, predicted | to the target, predicted | where |"
    found = plan.set_index(["scale", "arm"])
    rows = []
    for name, scale in scales.items():
        for entry in scale.savings:
            pair = [(name, entry.arm), (name, entry.against)]
            if not all(place in found.index for place in pair):
                continue
            own, other = (found.loc[place] for place in pair)
            run = own[entry.unit] / other[entry.unit]
            target = run * own["steps_ratio"] / other["steps_ratio"]
            bound = "" if own["steps_ratio_reached"] else "≥ "
            to_target = f"{bound}{target:.2f}" if target == target else "–"
            rows.append(
                f"| {name} | {titles[entry.arm]} | {titles[entry.against]} | {entry.unit.replace('_', ' ')}, "
                f"{entry.benchmark} | {entry.factor.value:.2f} | {run:.2f} | {to_target} | {entry.factor.why} |"
            )
    return "\n".join([head, "|---|---|---|---|---:|---:|---:|---|", *rows])


def assumptions_table(assumptions: Assumptions) -> str:
    """Every assumption, its value here and its meaning, from the docstring that states them."""
    meanings = {}
    for line in type(assumptions).__doc__.splitlines():
        name, _, meaning = line.strip().partition(" ")
        if name in type(assumptions).model_fields:
            meanings[name] = meaning.strip()
    rows = [f"| {name} | {value} | {meanings.get(name, '')} |" for name, value in assumptions.model_dump().items()]
    return "\n".join(["| assumption | value | what it is |", "|---|---:|---|", *rows])


def save(output: str, plan: pd.DataFrame, lengths: pd.DataFrame, assumptions: Assumptions) -> None:
    """The data of the report."""
    folder = Path(output)
    write_parquet(plan, folder / "plan.parquet")
    write_parquet(lengths, folder / "lengths.parquet")
    write_json(assumptions.model_dump(), folder / "assumptions.json")


def _range(share: pd.Series) -> str:
    return f"{share.min():.0%} to {share.max():.0%}"


def _ratio(row: pd.Series, name: str) -> str:
    """value [low, high], ≥ where the target was not reached, – where the study has no such run."""
    if np.isnan(row[name]):
        return "–"
    if not row["steps_ratio_reached"]:
        return f"≥ {row[name]:.2f}"
    high = f"{'≥ ' if row['steps_ratio_open'] else ''}{row[f'{name}_high']:.2f}"
    return f"{row[name]:.2f} [{row[f'{name}_low']:.2f}, {high}]"
