"""Figures of the theory of sGPO's group size. Drawing only: the numbers come from repro.theory."""

from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, PercentFormatter
from pandas import DataFrame

from repro.methods.group_sizes.posterior import add_one_ratio, inverse_ratio
from repro.methods.group_sizes.rule import rule_size
from repro.plots.style import BASELINE, COLORS, DASHES, STRIPE, arm_styles, new_figure
from repro.theory.group_size.closed_forms import criteria, over_sizes
from repro.theory.group_size.plans import SAVINGS, Population, compare
from repro.theory.group_size.rule import HALF, LARGEST, RIGHT
from repro.theory.group_size.verdicts import PAPER_SAVING

Z95 = 1.96
SIMULATED = {"mean |A|": "mean_advantage", "greatest A": "best_advantage", "one success": "one_success"}
SAVING_TITLES = {
    "saving_pass": "per pass over the queries",
    "saving_rate": "per informative group",
    "saving_advantage": "per |A|",
    "saving_greatest": "per greatest advantage",
    "saving_coverage": "same groups, same queries",
}
PLAN_LABELS = {
    "uniform": ("uniform", (6, -14)),
    "filter": ("filter alone", (8, -4)),
    "sgpo": ("sGPO", (8, -6)),
    "strict": ("sGPO, p̂ = 0 dropped", (8, -10)),
    "equal": ("filter, equal sizes", (10, -6)),
}


def values_by_size(p: float, price: float, groups: DataFrame | None = None) -> Figure:
    """Each criterion over the group size at one p, each over its largest value, and where the rule lands.

    `groups`: simulate_groups' table; its rows of this p are drawn as points with 95% intervals.
    """
    figure, axes = new_figure(4.9)
    ax = axes[0, 0]
    sizes_G = np.arange(2, 65)
    for name, (title, style) in _criterion_styles(price).items():
        values_G = over_sizes(criteria(price)[name].value, p, sizes_G)
        largest = values_G.max()
        if largest <= 0:
            continue  # no group pays at this price
        ax.plot(sizes_G, values_G / largest, label=title, **style | {"marker": None})
        if groups is not None:
            _simulated(ax, groups[groups["p"] == p], name, largest, style)
    rule = int(rule_size(p))
    ax.axvline(rule, color="0.1", linewidth=1)
    ax.annotate(f"⌈1/p⌉ = {rule}", (rule, 0.03), xytext=(4, 0), textcoords="offset points")
    ax.set(xscale="log", xlabel="group size G (rollouts)", ylabel="value / its largest for G ≤ 64", ylim=(0, 1.08))
    _powers_of_two(ax, 64)
    figure.legend(loc="outside lower center", ncols=2)
    ax.set_title(f"At p = {p:g}, which group size does each reading ask for?", loc="left", fontweight="bold")
    return figure


def rule_map(found: DataFrame, price: float) -> Figure:
    """Above: the best size of each criterion against 1/p, beside the rule. Below: the share of the best it attains.

    `found`: against_rule's table.
    """
    figure, axes = new_figure(8.6, 2, height_ratios=(1, 1))
    upper, lower = axes[:, 0]
    for name, (title, style) in _criterion_styles(price).items():
        part = found[found["criterion"] == name]
        low = part[(part["p"] <= 0.5) & (part["best_size"] > 0)]
        upper.plot(1 / low["p"], low["best_size"], label=title, markevery=0.2, **style)
        lower.plot(part["p"], part["share"], markevery=0.1, **style)
    inverse = np.array([2.0, 100.0])
    upper.plot(inverse, inverse, label="the rule, 1/p", **BASELINE)
    upper.set(xscale="log", yscale="log", xlabel="1/p", ylabel=f"best G (of 2 to {LARGEST})", ylim=(1.6, 260))
    _powers_of_two(upper, 64)
    upper.set_yticks(ticks := [2, 4, 8, 16, 32, 64, 128], [f"{G}" for G in ticks])
    upper.yaxis.set_minor_formatter(NullFormatter())
    upper.legend(loc="upper left", bbox_to_anchor=(0.0, 0.93), fontsize=10.5)
    upper.set_title("Which readings of “most advantage” ask for G = 1/p?", loc="left", fontweight="bold")
    for low, high, label in ((RIGHT, 1.0, "right"), (HALF, RIGHT, "half right"), (0.0, HALF, "wrong")):
        lower.axhspan(low, high, color=STRIPE if label == "half right" else "white", zorder=0)
        lower.annotate(label, (1.01, (low + high) / 2), xycoords=("axes fraction", "data"), va="center", fontsize=11)
    lower.set_xscale("logit")
    lower.set_xticks(marks := [0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.99], [f"{p:g}" for p in marks])
    lower.xaxis.set_minor_formatter(NullFormatter())
    lower.set(xlabel="success probability p", ylabel="value at ⌈1/p⌉ / best value", ylim=(-0.03, 1.03))
    lower.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return figure


def profile_errors(profiles: DataFrame, by_samples: DataFrame, samples: int) -> Figure:
    """Above: 1/p̂ on average, over 1/p, for several K. Below: shares filed as trivial and as unsolvable, by K.

    `profiles`: simulate_profiles' table, for K = `samples`; `by_samples`: the table of that name.
    """
    figure, axes = new_figure(6.9, 2)
    ratio, filed = axes[:, 0]
    p_P = np.geomspace(0.01, 0.99, 150)
    sizes = sorted({4, 16, samples})
    for K, style in arm_styles([f"{K}" for K in sizes]).items():
        ratio.plot(p_P, inverse_ratio(p_P, int(K)), label=f"1/p̂, K = {K}", **style | {"marker": None})
    ratio.plot(p_P, add_one_ratio(p_P, samples), label=f"(K+1)/(s+1), K = {samples}", color="0.1", linestyle=DASHES[3])
    drawn = profiles[profiles["p"].notna()]
    ratio.errorbar(
        drawn["p"], drawn["simulated"], Z95 * drawn["error"], fmt="o", color="0.1", markersize=4, label="simulated"
    )
    ratio.axhline(1.0, color="0.35", linewidth=1)
    ratio.set(xscale="log", xlabel="success probability p", ylabel="estimate of 1/p, mean / true", ylim=(0, None))
    ratio.set_xticks(marks := [0.01, 0.03, 0.1, 0.3, 1.0], [f"{p:g}" for p in marks])
    ratio.xaxis.set_minor_formatter(NullFormatter())
    ratio.legend(loc="lower right", fontsize=10.5)
    ratio.set_title("How far is 1/p̂ from 1/p?", loc="left", fontweight="bold")
    place_K = np.arange(len(by_samples))
    for shift, kind, color, hatch in ((-0.2, "trivial", COLORS[0], "///"), (0.2, "unsolvable", COLORS[3], "xxx")):
        filed.bar(place_K + shift, by_samples[kind], 0.36, color=color, alpha=0.35, label=f"filed as {kind}")
        wrongly = by_samples[f"{kind}_wrongly"]
        filed.bar(place_K + shift, wrongly, 0.36, color=color, hatch=hatch, edgecolor="white", label="of it wrongly")
    filed.set_xticks(place_K, [f"{K}" for K in by_samples.index])
    filed.set(xlabel="samples per query K", ylabel="share of all queries")
    filed.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    filed.legend(fontsize=10.5)
    filed.set_title("How many queries are misfiled?", loc="left", fontweight="bold")
    return figure


def frontiers(population: Population) -> Figure:
    """What a number of rollouts per query can bring, and where the plans lie; the profile is not charged here."""
    figure, axes = new_figure(4.8)
    ax = axes[0, 0]
    spent = np.linspace(0, 1.5 * population.uniform, 200)
    curves = (
        ("best if p were known", population.known, {"color": "0.45", "linestyle": DASHES[2]}),
        (f"best for a profile of {population.samples}", population.best, {"color": COLORS[0]}),
        ("one size for all queries", population.unprofiled, {"color": COLORS[1], "linestyle": DASHES[1]}),
    )
    for label, curve, style in curves:
        ax.plot(spent, curve.gain(spent), label=label, **style)
    compared = compare(population)
    for name, (label, offset) in PLAN_LABELS.items():
        row = compared.loc[name]
        ax.plot(row["rollouts"], row["informative"], "o", color="0.1", markersize=8 if name == "sgpo" else 5)
        weight = "bold" if name == "sgpo" else "normal"
        ax.annotate(
            label,
            (row["rollouts"], row["informative"]),
            xytext=offset,
            textcoords="offset points",
            fontsize=11,
            weight=weight,
        )
    ax.set(
        xlabel="rollouts per query and pass",
        ylabel="informative groups\nper query and pass",
        xlim=(0, None),
        ylim=(0, None),
    )
    ax.legend(loc="lower right")
    ax.set_title("What does a rollout budget buy, and what does ⌈1/p̂⌉ leave?", loc="left", fontweight="bold")
    return figure


def savings(by_baseline: DataFrame, by_difficulty: DataFrame) -> Figure:
    """Above: sGPO's savings against uniform groups of several sizes. Below: per informative group, by difficulty."""
    figure, axes = new_figure(6.9, 2)
    baseline, difficulty = axes[:, 0]
    for name, style in arm_styles(SAVINGS).items():
        baseline.plot(by_baseline.index, by_baseline[name], label=SAVING_TITLES[name], **style)
    baseline.set(xscale="log", yscale="log", xlabel="uniform group size compared with")
    _powers_of_two(baseline, int(by_baseline.index.max()))
    baseline.set_title("Against which baseline does sGPO save?", loc="left", fontweight="bold")
    strengths = sorted(by_difficulty["strength"].unique())
    for plan, label, width in (("sgpo", "sGPO", 2.2), ("filter", "filter alone", 1.2)):
        for place, strength in enumerate(strengths):
            chosen = by_difficulty[(by_difficulty["plan"] == plan) & (by_difficulty["strength"] == strength)]
            style = {
                "color": COLORS[0] if plan == "sgpo" else COLORS[1],
                "linestyle": DASHES[place],
                "linewidth": width,
            }
            difficulty.plot(chosen["mean"], chosen["saving_rate"], label=f"{label}, α+β = {strength:g}", **style)
    difficulty.set(yscale="log", xlabel="mean success α/(α+β)")
    difficulty.set_title("For which difficulty, per informative group?", loc="left", fontweight="bold")
    for ax in (baseline, difficulty):
        ax.axhspan(*PAPER_SAVING, color="0.85", zorder=0)
        ax.axhline(1.0, color="0.35", linewidth=1)
        ax.set_yticks(ticks := [0.5, 1, 2, 4, 8], [f"{tick:g}×" for tick in ticks])
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.set_ylim(0.4, 16)
    baseline.legend(loc="upper left", fontsize=10.5)
    difficulty.legend(loc="upper left", ncols=2, fontsize=10.5)
    baseline.set_ylabel("uniform's cost / sGPO's")
    difficulty.set_ylabel("uniform's cost / the plan's")
    place = {"xycoords": ("axes fraction", "data"), "ha": "center", "va": "center", "fontsize": 11}
    difficulty.annotate("what the paper reports", (0.42, np.sqrt(np.prod(PAPER_SAVING))), **place)
    return figure


def explore_plans(alpha: float, beta: float, samples: int, population: Population) -> Figure:
    """`frontiers` for another population and another K: what the sliders of the notebook show."""
    return frontiers(replace(population, alpha=alpha, beta=beta, samples=samples))


def _criterion_styles(price: float) -> dict[str, tuple[str, dict]]:
    found = criteria(price)
    return {name: (found[name].title, style) for name, style in arm_styles(list(found)).items()}


def _simulated(ax: Axes, rows: DataFrame, criterion: str, largest: float, style: dict) -> None:
    """The measured values of one criterion; per rollout where it is."""
    for quantity, name in {**SIMULATED, "informative": "informative"}.items():
        if name == criterion:
            part = rows[rows["quantity"] == quantity]
            scale = largest * (part["size"] if name in ("informative", "best_advantage") else 1)
            marks = {"fmt": style["marker"], "color": style["color"], "markersize": 5}
            ax.errorbar(part["size"], part["simulated"] / scale, Z95 * part["error"] / scale, **marks)


def _powers_of_two(ax: Axes, largest: int) -> None:
    ticks = [2**k for k in range(1, int(np.log2(largest)) + 1)]
    ax.set_xticks(ticks, [f"{tick}" for tick in ticks])
    ax.xaxis.set_minor_formatter(NullFormatter())
