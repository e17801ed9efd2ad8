"""The plan in tables and sentences."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from repro.files import write_json, write_parquet
from repro.paper_scale import SCALES, PaperScale
from repro.settings.planner import Assumptions


def conclusion(
    plan: pd.DataFrame,
    checked: pd.DataFrame,
    changed: pd.DataFrame,
    baseline: str,
    titles: Mapping[str, str],
    scales: Mapping[str, PaperScale] = SCALES,
) -> str:
    """What to take away, every number computed. `plan`: repro.experiments.planner.target.to_target's; `changed`:
    sensitivity's."""
    base, title = plan[plan["arm"] == baseline], titles[baseline]
    cheap, dear = (base.loc[base["gpu_hours"].agg(pick)] for pick in ("idxmin", "idxmax"))
    others = plan[plan["arm"] != baseline]
    train, generate = base["hours_train"] / base["hours"], base["hours_generate"] / base["hours"]
    least, most = (others.loc[others["hours_ratio"].agg(pick)] for pick in ("idxmin", "idxmax"))
    lines = [
        f"- **{title}** takes {cheap['gpu_hours']:,.0f} ({scales[cheap['scale']].title}) to {dear['gpu_hours']:,.0f} "
        f"GPU-hours ({scales[dear['scale']].title}): {_range(generate)} of them generate, {_range(train)} train. A "
        "sampler that chooses among finished rollouts can save at most its part of the latter.",
        f"- **A run of as many steps** takes from {least['hours_ratio']:.2f} ({titles[least['arm']]} at "
        f"{scales[least['scale']].title}) to {most['hours_ratio']:.2f} times ({titles[most['arm']]} at "
        f"{scales[most['scale']].title}) the hours of {title}'s.",
    ]
    if len(checked):
        lines += [_against_papers(checked, changed, titles), *_zvf_over_grpo(checked)]
    return "\n".join(lines)


def _against_papers(checked: pd.DataFrame, changed: pd.DataFrame, titles: Mapping[str, str]) -> str:
    told = "; ".join(
        f"{titles[row['arm']]} {row['hours']:.0f} h, where the paper says {row['paper_hours']:.0f} h"
        for _, row in checked.iterrows()
    )
    first = changed[(changed["scale"] == checked["scale"].iloc[0]) & (changed["arm"] == checked["arm"].iloc[0])]
    hours = first.set_index("change")["hours"]
    alone = hours.iloc[1:].sort_values(ascending=False)
    moves = "; ".join(f"{change}: {value:.0f} h" for change, value in alone.items())
    return (
        f"- **Held against the papers' durations**, evaluation included: {told}. The prediction is "
        f"{checked['share'].min():.0%} to {checked['share'].max():.0%} of them. The paper says neither how many GPUs "
        "nor how many epochs, how long the responses or how often it evaluated; each is an assumption here, and "
        f"none alone need be wrong by much. {titles[checked['arm'].iloc[0]]} under other ones: {moves}. So hours are "
        "good to a factor of several; ratios between arms, in which most of it cancels, to much less."
    )


def _zvf_over_grpo(checked: pd.DataFrame) -> list[str]:
    if not {"grpo", "zvf"} <= set(checked["arm"]):
        return []
    pair = checked.pivot(index="scale", columns="arm", values=["hours", "paper_hours"])
    ratio, stated = ((pair[kind]["zvf"] / pair[kind]["grpo"]).dropna() for kind in ("hours", "paper_hours"))
    return [
        f"- **ZVF over GRPO**, in which most assumptions cancel: {ratio.iloc[0]:.2f} times the hours; the paper's are "
        f"{stated.iloc[0]:.2f}; the rest hangs on how many groups have no signal, of which the embedded study's "
        "queries are no measure for the paper's."
    ]


def baseline_table(plan: pd.DataFrame, baseline: str, scales: Mapping[str, PaperScale] = SCALES) -> str:
    """The baseline at every scale: tokens, FLOPs, hours."""
    head = (
        "| scale | steps | mean response, tokens | generated, 10⁹ tokens | trained, 10⁹ tokens | 10¹⁸ FLOPs | hours | "
        "GPU-hours |"
    )
    rows = []
    for _, row in plan[plan["arm"] == baseline].iterrows():
        rows.append(
            f"| {scales[row['scale']].title} | {row['steps']} | {row['response_tokens']:.0f} | "
            f"{_tokens(row)} | {row['flops'] / 1e18:.0f} | {row['hours']:.1f} on {row['gpus']} | "
            f"{row['gpu_hours']:,.0f} |"
        )
    return "\n".join([head, "|---|" + "---:|" * 7, *rows])


def memory_table(
    plan: pd.DataFrame, baseline: str, assumptions: Assumptions, scales: Mapping[str, PaperScale] = SCALES
) -> str:
    """GB of each GPU: while training, for the inference engine, and how many contexts fit its cache."""
    rows = [
        f"| {scales[row['scale']].title} | {row['gpus']} | {row['memory_train']:.0f} | {row['memory_rollout']:.0f} | "
        f"{row['cache_contexts']:,} |"
        for _, row in plan[plan["arm"] == baseline].iterrows()
    ]
    of = f"of {assumptions.memory_gb:.0f}"
    head = f"| scale | GPUs | GB {of}, training | GB {of}, generating | contexts that a replica's cache holds |"
    return "\n".join([head, "|---|---:|---:|---:|---:|", *rows])


def checks_table(
    checked: pd.DataFrame, lengths: Mapping[tuple[str, str], float], scales: Mapping[str, PaperScale] = SCALES
) -> str:
    """Predicted hours beside the papers', and at which mean response they would agree."""
    head = "| scale | arm | predicted, hours | paper, hours | predicted / paper | agree at a mean response of | where |"
    rows = []
    for _, row in checked.iterrows():
        tokens = lengths.get((row["scale"], row["arm"]), float("nan"))
        scale = scales[row["scale"]]
        agree = f"{tokens:.0f} of {scale.max_response_tokens.value} tokens" if tokens == tokens else "none possible"
        rows.append(
            f"| {scale.title} | {row['arm']} | {row['hours']:.1f} | {row['paper_hours']:.0f} | {row['share']:.2f} | "
            f"{agree} | {row['where']} |"
        )
    return "\n".join([head, "|---|---|---:|---:|---:|---:|---|", *rows])


def sensitivity_table(found: pd.DataFrame, scales: Mapping[str, PaperScale] = SCALES) -> str:
    """Hours of the runs whose duration is stated, under other assumptions. `found`:
    repro.experiments.planner.sensitivity's."""
    runs = list(dict.fromkeys(zip(found["scale"], found["arm"], strict=True)))
    table = found.set_index(["change", "scale", "arm"])
    heads = [f"{scales[scale].title}: {arm}, hours" for scale, arm in runs]
    rows = [
        f"| {change} | " + " | ".join(f"{table.loc[(change, *run), 'hours']:.1f}" for run in runs) + " |"
        for change in dict.fromkeys(found["change"])
    ]
    stated = [f"**{scales[scale].hours[arm].value:.0f}**" for scale, arm in runs]
    lines = [*rows, f"| **the paper** | {' | '.join(stated)} |"]
    return "\n".join([f"| assumption | {' | '.join(heads)} |", "|---|" + "---:|" * len(runs), *lines])


def arms_table(plan: pd.DataFrame, scale: str, titles: Mapping[str, str]) -> str:
    """Every arm at one scale. `plan`: repro.experiments.planner.target.to_target's."""
    head = (
        "| arm | GPU-hours | generated, 10⁹ tokens | trained, 10⁹ tokens | FLOPs, ratio | hours of a run, ratio | "
        "steps to the target, embedded study | hours to the target, ratio |"
    )
    rows = []
    for _, row in plan[plan["scale"] == scale].iterrows():
        rows.append(
            f"| {titles[row['arm']]} | {row['gpu_hours']:,.0f} | {_tokens(row)} | {row['flops_ratio']:.2f} | "
            f"{row['hours_ratio']:.2f} | {_ratio(row, 'steps_ratio')} | {_ratio(row, 'target_ratio')} |"
        )
    return "\n".join([head, "|---|---:|---:|---:|---:|---:|---:|---:|", *rows])


def _tokens(row: pd.Series) -> str:
    return f"{row['generated_tokens'] / 1e9:.2f} | {row['trained_tokens'] / 1e9:.2f}"


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
                f"| {scale.title} | {titles[entry.arm]} | {titles[entry.against]} | {entry.unit.replace('_', ' ')}, "
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


def save(
    output: str, plan: pd.DataFrame, lengths: pd.DataFrame, changed: pd.DataFrame, assumptions: Assumptions
) -> None:
    """The data of the report."""
    folder = Path(output)
    write_parquet(plan, folder / "plan.parquet")
    write_parquet(lengths, folder / "lengths.parquet")
    write_parquet(changed, folder / "sensitivity.parquet")
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
