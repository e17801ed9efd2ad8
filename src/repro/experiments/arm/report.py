"""The parts of an arm's report that are words and tables."""

import inspect
import re

import numpy as np
import pandas as pd

from repro import arms
from repro.experiments.results.tables import AXIS_NAMES, number, p_value, ratio
from repro.methods.objectives.aggregate import token_coefficients
from repro.settings import Settings
from repro.stats.intervals import mean_intervals
from repro.stats.pass_at_k import KS


def definition(name: str, settings: Settings) -> str:
    """Markdown: what the arm is, and each of its parts in the order in which a step uses them, with its parameters and
    its docstring (equation, source, deviations)."""
    arm = settings.arm(name)
    method = arms.build(name, arm)
    parts = [("Query plan", method.plan), ("Reward", method.reward)]
    parts += [("Filter", method.filter)] if method.filter else []
    parts += [("Advantage", method.advantage), *(("Sampler", part) for part in method.samplers)]
    lines = [f"**{arm.title}** ({arm.group}). {arm.about}", ""]
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
    lines += [
        f"**Aggregation `{method.aggregation}`**",
        "",
        f"Coefficient of a token's loss: {_aggregation(method)}",
        "",
    ]
    if arm.profile:
        again = f", again {arm.profile.again} times on the way" if arm.profile.again else ""
        lines += [f"**Profile**: {arm.profile.samples} samples of every training query{again}, charged to the arm.", ""]
        lines += [f"What the plan assumes: {_flowing(inspect.getmodule(method.plan.func).__doc__ or '')}", ""]
    if arm.steps:
        lines += [f"**Steps** {arm.steps} in place of {settings.engine.steps}.", ""]
    seeds = settings.seeds_of(name)
    own = ", its own: no run of the baseline has the same seeds, so nothing here is paired" if arm.seeds else ""
    return "\n".join([*lines, f"**Seeds** {', '.join(map(str, seeds))}{own}."])


def _aggregation(method: arms.Method) -> str:
    """What `repro.methods.objectives.aggregate` says of this aggregation: its entry in the docstring."""
    entries = re.split(r"^(\S+): ", inspect.getdoc(token_coefficients) or "", flags=re.MULTILINE)
    by_name = dict(zip(entries[1::2], entries[2::2], strict=True))
    return " ".join(by_name[method.aggregation].split("\nA sequence")[0].split())


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
    """What the figures say, computed: final accuracy, difference to the baseline, cost ratio, tokens, runs lost."""
    arm, baseline = settings.arm(name), settings.arm(settings.baseline)
    ends = final_accuracies(name, evaluations)
    accuracy, low, high = mean_intervals({name: ends}, settings.statistics)[name]
    interval = _between(low, high, ".3f", f", {settings.statistics.confidence:.0%} interval ")
    text = f"{arm.title} ends at {accuracy:.3f} held-out accuracy ({len(ends)} seeds{interval})"
    lost = _lost(name, evaluations)
    if name not in set(summary["arm"]):
        theirs = final_accuracies(settings.baseline, evaluations)
        return (
            f"{text}; {baseline.title} ends at {theirs.mean():.3f} with {len(theirs)} seeds. The seeds are not the "
            f"same, so runs are not paired and no difference is tested here.{lost}"
        )
    row = summary.set_index("arm").loc[name]
    if name == settings.baseline:
        return f"{text}, {row['gain']:+.3f}{_between(row['gain_low'], row['gain_high'])} over the base policy.{lost}"
    level = settings.statistics.levels[0]
    cost = ratio(row, f"trained_tokens_ratio_{round(100 * level)}")
    against = f"{row['difference']:+.3f}{_between(row['difference_low'], row['difference_high'])}"
    return (
        f"{text}, {against} against {baseline.title}, paired by seed. Tokens trained on to reach {level:.0%} of "
        f"{baseline.title}'s rise, relative to {baseline.title}: {cost}. "
        f"In all it trains on {row['tokens']:.2f} times {baseline.title}'s tokens.{lost}"
    )


def _between(low: float, high: float, form: str = "+.3f", before: str = " (") -> str:
    """The interval in words; nothing where one seed gives none."""
    return "" if np.isnan(low) else f"{before}{low:{form}} to {high:{form}}{')' if before == ' (' else ''}"


def final_accuracies(name: str, evaluations: pd.DataFrame) -> np.ndarray:
    """accuracy_S of the last evaluation of each run, seeds in order; that of a diverged run is where it stopped."""
    own = evaluations[evaluations["arm"] == name].sort_values("step")
    return own.groupby("seed")["accuracy"].last().to_numpy()


def _lost(name: str, evaluations: pd.DataFrame) -> str:
    own = evaluations[evaluations["arm"] == name]
    diverged, runs = int(own.groupby("seed")["diverged"].any().sum()), own["seed"].nunique()
    stays = "stays" if diverged == 1 else "stay"
    return f" {diverged} of its {runs} runs diverged and {stays} in every mean." if diverged else ""


def outcome_table(name: str, summary: pd.DataFrame, evaluations: pd.DataFrame, settings: Settings) -> str:
    """Markdown: how the arm ends, the baseline beside it and the paired difference; without the latter where the seeds
    are not the same. p is uncorrected: the correction needs every arm, which the results across arms have."""
    baseline = settings.baseline
    both = list(dict.fromkeys([name, baseline]))
    heads = [*(settings.arm(arm).title for arm in both), *(["difference"] if name != baseline else [])]
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    if name not in set(summary["arm"]):
        ends = mean_intervals({arm: final_accuracies(arm, evaluations) for arm in both}, settings.statistics)
        cells = [
            f"{mean:.3f}" + ("" if np.isnan(low) else f" [{low:.3f}, {high:.3f}]") for mean, low, high in ends.values()
        ]
        return "\n".join([*lines, f"| final accuracy | {' | '.join(cells)} | not paired |"]) + "\n"
    rows = summary.set_index("arm")
    measures = {"final accuracy": ("accuracy", "difference"), "best checkpoint": ("best", "best_difference")}
    measures |= {f"pass@{k}": (f"pass_{k}", f"pass_{k}_difference") for k in KS}
    for label, (column, difference) in measures.items():
        cells = [number(rows.loc[arm], column, 3) for arm in both]
        cells += [number(rows.loc[name], difference, 3, signed=True)] if name != baseline else []
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    if name != baseline:
        lines.append(f"| p of the final difference, uncorrected | | | {p_value(rows.loc[name], 'p_value')} |")
    return "\n".join(lines) + "\n"


def cost_table(name: str, summary: pd.DataFrame, settings: Settings) -> str:
    """Markdown: cost to reach each level of the baseline's rise relative to the baseline's, a row per axis."""
    if name == settings.baseline:
        return "This is the arm that the others are held to: every ratio is 1."
    if name not in set(summary["arm"]):
        return "Its seeds are not the baseline's: no ratio is formed."
    row, levels = summary.set_index("arm").loc[name], [round(100 * level) for level in settings.statistics.levels]
    lines = ["| relative to the baseline | " + " | ".join(f"to {level}% of the rise" for level in levels) + " |"]
    lines.append("|---|" + "---:|" * len(levels))
    for axis, label in AXIS_NAMES.items():
        if f"{axis}_ratio_{levels[0]}" in row:
            cells = [ratio(row, f"{axis}_ratio_{level}") for level in levels]
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def ledger_table(evaluations: pd.DataFrame, steps: pd.DataFrame, settings: Settings) -> str:
    """Markdown: the ledger at the end of training, mean over seeds, one column an arm, and the steps without update."""
    rows = {
        "queries": ("groups generated", 1),
        "rollouts": ("rollouts generated", 1),
        "updates": ("optimiser steps", 1),
        "prompt_tokens": ("prompt tokens prefilled (thousands)", 1e3),
        "generated_tokens": ("tokens generated (thousands)", 1e3),
        "profile_tokens": ("of them for profiles (thousands)", 1e3),
        "scored_tokens": ("tokens scored without gradient (thousands)", 1e3),
        "trained_tokens": ("tokens trained on (thousands)", 1e3),
        "flops_generate": ("GFLOPs, generation", 1e9),
        "flops_profile": ("of them for profiles", 1e9),
        "flops_score": ("GFLOPs, scoring", 1e9),
        "flops_train": ("GFLOPs, updates", 1e9),
    }
    shown = list(dict.fromkeys(evaluations["arm"]))
    last = evaluations.sort_values("step").groupby(["arm", "seed"]).last().groupby("arm").mean(numeric_only=True)
    lines = ["| | " + " | ".join(settings.arm(arm).title for arm in shown) + " |", "|---|" + "---:|" * len(shown)]
    for name, (label, unit) in rows.items():
        if name not in last or ("profile" in name and not last[name].any()):
            continue
        cells = [f"{value:,.0f}" if (value := last.loc[arm, name] / unit) >= 100 else f"{value:.3g}" for arm in shown]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    skipped = steps.groupby(["arm", "seed"])["skipped"].agg(["sum", "size"]).groupby("arm").mean()
    cells = [f"{skipped.loc[arm, 'sum']:.3g} of {skipped.loc[arm, 'size']:.3g}" for arm in shown]
    return "\n".join([*lines, "| steps skipped: no rollout had a signal | " + " | ".join(cells) + " |"]) + "\n"


def where_samples_went(
    selection: pd.DataFrame, steps: pd.DataFrame | None = None, profiled: pd.Series | None = None
) -> str:
    """Which rollouts of the logged batches trained, in two sentences: how many, and how they differ from those left.

    `steps`, of an arm with a filter: its batches hold only what passed, and the text says how much that was.
    `profiled`: the rollouts that each of its seeds had generated before the first step.
    """
    used = selection["times_trained"] > 0
    logged, which = ", ".join(map(str, sorted(selection["step"].unique()))), "generated"
    if steps is not None:
        totals = steps.sort_values("step")
        first = totals["rollouts"] - totals["seed"].map(profiled) if profiled is not None else totals["rollouts"]
        generated = totals.groupby("seed")["rollouts"].diff().fillna(first)
        share = len(selection) / generated[totals["step"].isin(selection["step"])].sum()
        which = f"that the filter left ({share:.0%} of those generated)"
    tokens = selection.loc[used, "cost"].sum() / selection["cost"].sum()
    text = f"Of the rollouts {which} at steps {logged}, {used.mean():.0%} trained, with {tokens:.0%} of the tokens"
    if not used.any():
        return f"{text}: every one of these updates was skipped."
    times = selection["times_trained"]
    means = {
        "|A|": (selection["advantage"].abs(), ".2f"),
        "response length": (selection["response_tokens"], ".1f"),
    }
    parts = []
    for label, (values, form) in means.items():
        trained = (values * times).sum() / times.sum()
        left = f" (left: {values[~used].mean():{form}})" if not used.all() else ""
        parts.append(f"mean {label} {trained:{form}}{left}")
    weights = selection.loc[used, "weight"]
    spread = f"weights from {weights.min():.2g} to {weights.max():.2g}" if weights.nunique() > 1 else "equal weights"
    most = f", one rollout up to {times.max()} times" if times.max() > 1 else ""
    return f"{text}{most}. Trained on: {', '.join(parts)}, {spread}."


def seconds_table(seconds: pd.DataFrame, settings: Settings) -> str:
    """Markdown: seconds of a run by phase, mean over seeds."""
    shown = list(dict.fromkeys(seconds["arm"]))
    means = seconds.groupby(["arm", "seed", "phase"])["seconds"].sum().groupby(["arm", "phase"]).mean()
    titles = " | ".join(settings.arm(arm).title for arm in shown)
    lines = [f"| seconds of a run | {titles} |", "|---|" + "---:|" * len(shown)]
    for phase in dict.fromkeys(seconds["phase"]):
        cells = [f"{means.get((arm, phase), 0.0):.1f}" for arm in shown]
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
