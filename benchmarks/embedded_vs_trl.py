"""The embedded engine compared with TRL's GRPOTrainer: `python -m benchmarks.embedded_vs_trl [--pairs N]`.

Both run in single-threaded processes, pinned to one core, and alternate batch by batch, so that other load on the
machine affects both equally. A batch is everything between two evaluations: generate, verify, update. Start-up, a
warm-up batch, evaluation and logging are excluded. Writes embedded_vs_trl.json and .md beside this file.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.task import GROUP, MINIBATCH, ROLLOUTS, UPDATES, base_policy
from repro.files import write_json, write_text
from repro.report.provenance import commit, hardware, packages

NAMES = {"embedded": "embedded engine", "trl": "TRL GRPOTrainer"}
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
QUIET = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONWARNINGS": "ignore",
}
PHASE_BATCHES = 9


def start(module: str, *arguments: str) -> subprocess.Popen:
    """`python -m benchmarks.<module>` with pipes, one thread, and, if the system supports it, one core."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
        env=os.environ | ONE_THREAD | QUIET,
    )
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
    return process


def answer(process: subprocess.Popen) -> str:
    """The next line of a competitor; SystemExit with the command to run by hand if it died."""
    if line := process.stdout.readline():
        return line
    raise SystemExit(f"a competitor stopped early; see why with: {' '.join(map(str, process.args))}")


def race(policy: Path, pairs: int) -> list[dict]:
    """One batch each, `pairs` times; the competitor that starts alternates."""
    competitors = {name: start("competitors", name, str(policy), str(pairs)) for name in NAMES}
    try:
        for process in competitors.values():
            answer(process)
        measured = []
        for pair in range(pairs):
            row = {}
            for name in list(NAMES) if pair % 2 == 0 else list(NAMES)[::-1]:
                print("go", file=competitors[name].stdin)
                row[name] = json.loads(answer(competitors[name]))
            measured.append({name: row[name] for name in NAMES})
            rates = ", ".join(f"{NAMES[name]} {ROLLOUTS / row[name]['seconds']:.0f} rollouts/s" for name in NAMES)
            print(f"pair {pair + 1}/{pairs}: {rates}", flush=True)
        return measured
    finally:
        for process in competitors.values():
            process.kill()
            process.wait()


def phases(policy: Path) -> dict:
    """Seconds and floor by phase, measured in a separate process, so that the stopwatch does not slow the race."""
    done, _ = start("floor", str(policy), str(PHASE_BATCHES)).communicate()
    return json.loads(done)


def summarise(pairs: list[dict]) -> dict:
    """Medians over the pairs; `ratio` is the median of the ratios within a pair, by wall clock and by CPU seconds."""
    median = {
        name: {key: float(np.median([pair[name][key] for pair in pairs])) for key in pairs[0][name]} for name in NAMES
    }
    for row in median.values():
        row["rollouts_per_second"] = ROLLOUTS / row["seconds"]
        row["rollouts_per_cpu_second"] = ROLLOUTS / row["cpu_seconds"]
    ratios = {key: [pair["trl"][key] / pair["embedded"][key] for pair in pairs] for key in ("seconds", "cpu_seconds")}
    return {
        "median": median,
        "ratio": float(np.median(ratios["seconds"])),
        "ratio_range": [min(ratios["seconds"]), max(ratios["seconds"])],
        "ratio_cpu": float(np.median(ratios["cpu_seconds"])),
    }


def table(result: dict) -> str:
    """The result as Markdown, short enough for the README."""
    lines = [
        "| | rollouts/s | rollouts per CPU second | mean response | optimiser steps per batch |",
        "|:--|--:|--:|--:|--:|",
    ]
    for name, title in NAMES.items():
        row = result["median"][name]
        lines.append(
            f"| {title} | {row['rollouts_per_second']:.0f} | {row['rollouts_per_cpu_second']:.0f} | "
            f"{row['response_tokens']:.1f} tokens | {row['updates']:.0f} |"
        )
    low, high = result["ratio_range"]
    lines += [
        "",
        f"Ratio **{result['ratio']:.2f}** ({low:.2f} to {high:.2f} over {len(result['pairs'])} interleaved pairs; "
        f"{result['ratio_cpu']:.2f} by CPU time). Batches of {ROLLOUTS} rollouts in groups of {GROUP}, {UPDATES} "
        f"optimiser steps on {MINIBATCH}; one thread each on {result['hardware']['cpu']}; "
        f"trl {result['packages']['trl']}, transformers {result['packages']['transformers']}, "
        f"torch {result['packages']['torch']}; commit {result['commit']}{' (dirty)' if result['dirty'] else ''}.",
        "",
        f"| phase of the embedded engine | ms per batch | share | GFLOP | ms at {result['peak_gflops']:.0f} GFLOP/s "
        "(the floor) | time / floor |",
        "|:--|--:|--:|--:|--:|--:|",
    ]
    rows = result["phases"]
    names = ("seconds", "flops", "floor_seconds")
    rows = [*rows, {"phase": "total"} | {name: sum(row[name] for row in rows) for name in names}]
    for row in rows:
        line = f"| {row['phase']} | {1e3 * row['seconds']:.1f} | {row['seconds'] / rows[-1]['seconds']:.0%} "
        if row["flops"]:
            share = row["seconds"] / row["floor_seconds"]
            line += f"| {row['flops'] / 1e9:.2f} | {1e3 * row['floor_seconds']:.1f} | {share:.1f} |"
        else:
            line += "| | | |"
        lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embedded_vs_trl", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--pairs", type=int, default=9, help="batches of each competitor (at least 5 for figures to quote)"
    )
    arguments = parser.parse_args()
    if arguments.pairs < 1:
        parser.error(f"--pairs is {arguments.pairs}; at least one pair is needed")
    if importlib.util.find_spec("trl") is None:
        raise SystemExit("benchmarks: TRL is not installed here: run `make extra-trl`, then this command again")
    policy = base_policy()
    print(f"policy: {policy}", flush=True)
    pairs = race(policy, arguments.pairs)
    result = {
        **commit(),
        "hardware": hardware(),
        "packages": packages() | {"trl": version("trl")},
        "rollouts": ROLLOUTS,
        "group": GROUP,
        "minibatch": MINIBATCH,
        **summarise(pairs),
        **phases(policy),
        "pairs": pairs,
    }
    here = Path(__file__)
    write_json(result, here.with_suffix(".json"))
    write_text(table(result), here.with_suffix(".md"))
    print(table(result), end="")


if __name__ == "__main__":
    main()
