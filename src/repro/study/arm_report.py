"""The parts of an arm's report that are words and tables."""

import inspect
from collections.abc import Mapping

import pandas as pd

from repro import arms
from repro.settings import Settings
from repro.study.tables import ratio


def definition(name: str, settings: Settings) -> str:
    """Markdown: what the arm is, and each of its parts with its parameters and its docstring."""
    arm = settings.arm(name)
    method = arms.build(name, arm)
    parts = [
        ("Query plan", method.plan),
        ("Advantage", method.advantage),
        *(("Sampler", part) for part in method.samplers),
    ]
    lines = [f"**{arm.title}.** {arm.about}", ""]
    if not method.samplers:
        lines += ["No sampler: every rollout of the batch trains once, with weight 1.", ""]
    for kind, bound in [*parts, ("Objective", method.objective)]:
        parameters = ", ".join(f"{key} = {value}" for key, value in bound.keywords.items()) or "no parameters"
        lines += [
            f"**{kind} `{bound.func.__name__}`** ({parameters})",
            "",
            _flowing(inspect.getdoc(bound.func) or ""),
            "",
        ]
    return "\n".join(lines)


def _flowing(docstring: str) -> str:
    """A docstring as Markdown: paragraphs without their line ends, indented blocks (equations) as they stand."""
    blocks = []
    for block in docstring.split("\n\n"):
        lines = block.splitlines()
        if all(line.startswith("    ") for line in lines):
            blocks.append("\n".join(["```text", *(line.strip() for line in lines), "```"]))
        else:
            blocks.append(" ".join(line.strip() for line in lines).replace("*", "\\*"))
    return "\n\n".join(blocks)


def conclusion(name: str, summary: pd.DataFrame, evaluations: pd.DataFrame, settings: Settings) -> str:
    """What the figures say, computed: final accuracy, difference to the baseline, cost ratio, tokens in all."""
    row = summary.set_index("arm").loc[name]
    arm, baseline = settings.arm(name), settings.arm(settings.baseline)
    interval = f"{settings.statistics.confidence:.0%} interval"
    text = (
        f"{arm.title} ends at {row['accuracy']:.3f} held-out accuracy "
        f"({interval} {row['accuracy_low']:.3f} to {row['accuracy_high']:.3f}, {int(row['seeds'])} seeds)"
    )
    if name == settings.baseline:
        return f"{text}, {row['gain']:+.3f} over the base policy ({row['gain_low']:+.3f} to {row['gain_high']:+.3f})."
    level = settings.statistics.levels[0]
    cost = ratio(row, f"trained_tokens_ratio_{round(100 * level)}")
    tokens = evaluations.groupby(["arm", "seed"])["trained_tokens"].max().groupby("arm").mean()
    return (
        f"{text}, {row['difference']:+.3f} against {baseline.title} paired by seed "
        f"({row['difference_low']:+.3f} to {row['difference_high']:+.3f}). Tokens trained on to reach {level:.0%} of "
        f"{baseline.title}'s rise, relative to {baseline.title}: {cost}. "
        f"In all it trains on {tokens[name] / tokens[settings.baseline]:.2f} times {baseline.title}'s tokens."
    )


def ledger_table(evaluations: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """Markdown: the ledger at the end of training, mean over seeds, one column an arm."""
    rows = {
        "queries": ("groups generated", 1),
        "rollouts": ("rollouts generated", 1),
        "updates": ("optimiser steps", 1),
        "prompt_tokens": ("prompt tokens prefilled (thousands)", 1e3),
        "generated_tokens": ("tokens generated (thousands)", 1e3),
        "scored_tokens": ("tokens scored without gradient (thousands)", 1e3),
        "trained_tokens": ("tokens trained on (thousands)", 1e3),
        "flops_generate": ("GFLOPs, generation", 1e9),
        "flops_score": ("GFLOPs, scoring", 1e9),
        "flops_train": ("GFLOPs, updates", 1e9),
    }
    last = evaluations.sort_values("step").groupby(["arm", "seed"]).last().groupby("arm").mean(numeric_only=True)
    lines = ["| | " + " | ".join(titles.values()) + " |", "|---|" + "---:|" * len(titles)]
    for name, (label, unit) in rows.items():
        cells = [f"{value:,.0f}" if (value := last.loc[arm, name] / unit) >= 100 else f"{value:.3g}" for arm in titles]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def seconds_table(seconds: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """Markdown: seconds of a run by phase, mean over seeds."""
    means = seconds.groupby(["arm", "seed", "phase"])["seconds"].sum().groupby(["arm", "phase"]).mean()
    lines = ["| seconds of a run | " + " | ".join(titles.values()) + " |", "|---|" + "---:|" * len(titles)]
    for phase in dict.fromkeys(seconds["phase"]):
        cells = [f"{means.get((arm, phase), 0.0):.1f}" for arm in titles]
        lines.append(f"| {phase} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def rollouts_table(rollouts: pd.DataFrame, per_step: int = 6) -> str:
    """Markdown: the first rollouts of the first and of the last logged step of the first seed."""
    own = rollouts[rollouts["seed"] == rollouts["seed"].min()]
    shown = pd.concat([own[own["step"] == step].head(per_step) for step in (own["step"].min(), own["step"].max())])
    heads = ["step", "prompt", "response", "reward", "A", "cost", "trained", "weight"]
    lines = ["| " + " | ".join(heads) + " |", "|---:|---|---|" + "---:|" * 5]
    for row in shown.to_dict("records"):
        lines.append(
            f"| {row['step']} | `{row['prompt']}` | `{row['response'] or ' '}` | {row['reward']:.0f} | "
            f"{row['advantage']:+.2f} | {row['cost']} | {row['times_trained']}× | {row['weight']:.2f} |"
        )
    return "\n".join(lines) + "\n"
