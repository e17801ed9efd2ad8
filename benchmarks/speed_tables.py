"""From the measurements of benchmarks.speed to its tables."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import binom

from benchmarks.workload import FIXED, GROUP, ROLLOUTS, UPDATES

GOALS = {"race": "≥ 6", "run": "≥ 2", "step": "≤ 0.53"}
PHASES = {"generation": "flops_generate", "update": "flops_train", "evaluation": "flops_evaluate"}
PHASES |= {"KL probe": None, "rest": None}


def median_interval(values: Sequence[float], confidence: float = 0.95) -> dict[str, float]:
    """The median and its sign-test interval: order statistics whose coverage is at least `confidence`, whatever the
    distribution; with fewer than six values the lowest and the highest, whose `coverage` is less."""
    ordered, n = np.sort(values), len(values)
    rank = max(int(binom.ppf((1 - confidence) / 2, n, 0.5)), 1)  # P(X < rank) ≤ (1 − confidence) / 2, save at rank 1
    coverage = 1 - 2 * binom.cdf(rank - 1, n, 0.5)
    return {
        "median": float(np.median(ordered)),
        "low": float(ordered[rank - 1]),
        "high": float(ordered[n - rank]),
        "coverage": float(coverage),
    }


def ratio_of(pairs: Sequence[dict], above: str, below: str, key: str) -> dict[str, float]:
    """Median and interval over pairs of `key`'s value for the competitor `above` to that for `below`."""
    return median_interval([pair[above][key] / pair[below][key] for pair in pairs])


def medians(pairs: Sequence[dict]) -> dict[str, dict[str, float]]:
    """The median of every value of every competitor."""
    return {
        name: {
            key: float(np.median([pair[name][key] for pair in pairs]))
            for key in row
            if key not in ("phases", "products")
        }
        for name, row in pairs[0].items()
    }


def summarise(measured: dict) -> dict:
    """Ratios and medians. `race` and `runs`: times as fast, by CPU and wall time; `steps`: the time now over before."""
    race, runs = measured["race"], measured["runs"]
    times = {"cpu": "cpu_seconds", "wall": "seconds"}
    return {
        "ratios": {
            "race": {
                engine: {name: ratio_of(race, "trl", engine, key) for name, key in times.items()}
                for engine in ("before", "after")
            },
            "runs": {
                arm: {name: ratio_of(pairs, "before", "after", key) for name, key in times.items()}
                for arm, pairs in runs.items()
            },
            "steps": {
                arm: {name: ratio_of(pairs, "after", "before", f"step_{key}") for name, key in times.items()}
                for arm, pairs in runs.items()
            },
        },
        "medians": {"race": medians(race), "runs": {arm: medians(pairs) for arm, pairs in runs.items()}},
    }


def as_markdown(result: dict) -> str:
    """The ratios, the phases of a run of the first arm, and the work that was done."""
    arm = next(iter(result["runs"]))
    return "\n\n".join([_ratios(result), _conditions(result), _phases(result, arm), _work(result)]) + "\n"


def _table(head: str, rows: list[str]) -> str:
    columns = head.count("|") - 1
    return "\n".join([head, "|:--" + "|--:" * (columns - 1) + "|", *rows])


def _shown(ratio: dict[str, float]) -> str:
    """The columns ratio, interval and wall clock."""
    cpu, wall = ratio["cpu"], ratio["wall"]
    return f"**{cpu['median']:.2f}** | {cpu['low']:.2f} to {cpu['high']:.2f} | {wall['median']:.2f}"


def _ratios(result: dict) -> str:
    race, ratios, old = result["medians"]["race"], result["ratios"], result["before"]
    trl, before, after = (ROLLOUTS / race[name]["cpu_seconds"] for name in ("trl", "before", "after"))
    multiple = ratios["race"]["before"]["cpu"]["median"]
    head = f"| by CPU time | {old} | now | ratio | interval | by wall clock | goal |"
    rows = [
        f"| rollouts per second; ratio to TRL's GRPOTrainer ({trl:.0f}) | {before:.0f} (ratio {multiple:.2f}) | "
        f"{after:.0f} | {_shown(ratios['race']['after'])} | {GOALS['race']} |"
    ]
    for arm, ratio in ratios["runs"].items():
        before, after = (result["medians"]["runs"][arm][name]["cpu_seconds"] for name in ("before", "after"))
        rows.append(
            f"| whole run, {arm}, s; {old} / now | {before:.1f} | {after:.1f} | {_shown(ratio)} | {GOALS['run']} |"
        )
    for arm, ratio in ratios["steps"].items():
        before, after = (
            1e3 * result["medians"]["runs"][arm][name]["step_cpu_seconds"] / FIXED["engine"]["steps"]
            for name in ("before", "after")
        )
        rows.append(
            f"| step, {arm}, ms; now / {old} | {before:.0f} | {after:.0f} | {_shown(ratio)} | {GOALS['step']} |"
        )
    return _table(head, rows)


def _conditions(result: dict) -> str:
    engine, evaluation, packages = FIXED["engine"], FIXED["evaluation"], result["packages"]
    runs = next(iter(result["runs"].values()))
    coverage = median_interval([0.0] * len(runs))["coverage"]
    return (
        f"Medians of the ratios within interleaved pairs: {len(result['race'])} batches against TRL, {len(runs)} runs "
        f"of each arm; sign-test intervals ({coverage:.0%} for runs and steps). Against TRL: batches of {ROLLOUTS} "
        f"rollouts in groups of {GROUP}, {UPDATES} optimiser steps. Runs: {engine['steps']} steps of "
        f"{engine['rollouts_per_step']} rollouts in mini-batches of {engine['minibatch']}, every "
        f"{evaluation['every']} steps an evaluation with {evaluation['samples']} samples per query, "
        f"{evaluation['final_samples']} at the end. One thread each on {result['hardware']['cpu']}; "
        f"trl {packages['trl']}, transformers {packages['transformers']}, "
        f"torch {packages['torch']}; commit {result['commit']}{' (dirty)' if result['dirty'] else ''}."
    )


def _phases(result: dict, arm: str) -> str:
    """CPU seconds by phase; the seconds that its matrix products take, and those that its FLOPs would take at the
    fastest product measured here."""
    both, peak = result["medians"]["runs"][arm], result["peak_gflops"] * 1e9
    names = [*PHASES, "total"]
    before, after = ({**row, "total": row["cpu_seconds"]} for row in (both["before"], both["after"]))
    floors = {phase: after[flops] / peak if flops else 0.0 for phase, flops in PHASES.items()}
    products = result["products"]
    for row in (floors, products):
        row["total"] = sum(row.values())
    rows = []
    for name in names:
        floor = f"{floors[name]:.2f}" if floors[name] else ""
        rows.append(
            f"| {name} | {before[name]:.2f} | {after[name]:.2f} | {after[name] / before[name]:.2f} | "
            f"{after[name] / after['total']:.0%} | {products.get(name, 0.0):.2f} | {floor} |"
        )
    head = f"| phase of a run of {arm}, CPU s | {result['before']} | now | ratio | share now | products | floor |"
    limit, old = before["total"] / products["total"], result["before"]
    of_step = sum(products.get(name, 0.0) for name in ("generation", "update", "KL probe"))
    step = of_step / before["step_cpu_seconds"]
    return (
        f"{_table(head, rows)}\n\nProducts: what matrix products and attention take at the shapes that occur. Were all "
        f"else free, a run would be {limit:.1f} times as fast as {old}'s, and a step take {step:.2f} of its time. The "
        f"floor is the time of the phase's FLOPs at {result['peak_gflops']:.0f} GFLOP/s, the fastest matrix product of "
        "the policy's shapes that was measured here."
    )


def _work(result: dict) -> str:
    """Per run: that both engines did the same."""
    rows = []
    for arm, both in result["medians"]["runs"].items():
        before, after = both["before"], both["after"]
        rows.append(
            f"| {arm} | {before['generated_tokens']:.0f}, {after['generated_tokens']:.0f} | "
            f"{before['evaluation_tokens']:.0f}, {after['evaluation_tokens']:.0f} | "
            f"{before['updates']:.0f}, {after['updates']:.0f} | {before['accuracy']:.3f}, {after['accuracy']:.3f} |"
        )
    head = (
        f"| work of a run: {result['before']}, now | tokens generated | in evaluations | optimiser steps | accuracy |"
    )
    return _table(head, rows)
