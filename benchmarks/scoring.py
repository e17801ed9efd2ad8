"""What choosing before scoring and merging draws save: `make bench-scoring`, or `python -m benchmarks.scoring`.

On verl (one rank of its engine) and on TRL, one step of an arm on one given batch, twice: as it would be if every
rollout were scored and every draw trained on, and as it is. The two take turns. The gradients of each mini-batch are
compared. Writes scoring.json and scoring.md beside this file.
"""

import argparse
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.publish import publish
from benchmarks.scoring_work import ARMS, GROUP, GROUPS, KL, LONGEST, SILENT, UPDATES, make_work, policy_folder
from benchmarks.speed import Competitor
from repro.report.provenance import commit, hardware, packages
from repro.stats.tables import markdown

TRAINERS = {"verl": "scoring_verl", "TRL": "scoring_trl"}
TOLERANCE = 1e-4  # of a gradient's norm, in single precision


def measure(pairs: int) -> list[dict]:
    """A row for each trainer, arm and pair; the first pair warms up and is left out."""
    make_work()
    policy_folder()
    competitors = {name: Competitor(module) for name, module in TRAINERS.items()}
    rows = []
    try:
        for turn in range(1 + pairs):
            for arm in ARMS:
                for name, competitor in competitors.items():
                    answer = competitor.ask("pair", arm=arm, turn=turn)
                    rows += [{"trainer": name, "arm": arm, "pair": turn, **answer}]
                    print(f"pair {turn}/{pairs}, {name}, {arm}: {answer['gradient_error']:.1e}", flush=True)
    finally:
        for competitor in competitors.values():
            competitor.stop()
    return [row for row in rows if row["pair"] > 0]


def table(rows: list[dict]) -> pd.DataFrame:
    """A row per trainer and arm: before → after, medians of CPU seconds, the largest difference of gradients."""
    shown = []
    for (trainer, arm), part in pd.DataFrame(rows).groupby(["trainer", "arm"], sort=False):
        before, after = (pd.DataFrame(part[side].tolist()).median() for side in ("before", "after"))
        row = {"trainer": trainer, "arm": arm}
        for words, name, unit, digits in (
            ("tokens scored", "scored_tokens", 1, 0),
            ("tokens trained", "trained_tokens", 1, 0),
            ("TFLOP scored", "flops_score", 1e12, 3),
            ("TFLOP trained", "flops_train", 1e12, 3),
            ("s scoring", "score_seconds", 1, 1),
            ("s training", "train_seconds", 1, 1),
        ):
            row[words] = " → ".join(f"{side[name] / unit:.{digits}f}" for side in (before, after))
        pairs = [
            (p["after"]["score_seconds"] + p["after"]["train_seconds"])
            / (p["before"]["score_seconds"] + p["before"]["train_seconds"])
            for p in part.to_dict("records")
        ]
        row["s, ratio"] = f"{np.median(pairs):.2f}"
        row["gradients differ by"] = f"{part['gradient_error'].max():.0e}"
        shown.append(row)
    return pd.DataFrame(shown)


def as_markdown(result: dict) -> str:
    about = (
        f"One step on {GROUPS} groups of {GROUP} rollouts, {SILENT} of them without a signal, {UPDATES} mini-batches, "
        f"a KL term ({KL:g}), the selection of the first step. Before → after: every rollout scored by policy and "
        "reference, every draw trained on; as it is. CPU seconds of one thread, medians of "
        f"{result['pairs']} interleaved pairs. Policy: SmolLM2-135M with a little noise on its weights; reference: "
        f"SmolLM2-135M, which also wrote the rollouts, answers to sums of at most {LONGEST} tokens. d3s reads "
        "entropies, so its first pass is still of all rollouts. Gradients: norm of the difference over the norm, "
        f"the largest of all mini-batches. {result['hardware']['cpu']}; "
        + ", ".join(f"{name} {result['packages'][name]}" for name in ("verl", "trl", "torch"))
        + f"; commit {result['commit'][:12]}."
    )
    return f"{markdown(table(result['rows']))}\n{about}\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scoring", description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=3)
    chosen = parser.parse_args()
    rows = measure(chosen.pairs)
    if (worst := max(row["gradient_error"] for row in rows)) > TOLERANCE:
        raise SystemExit(f"benchmarks: the gradients differ by {worst:.1e} of their norm; nothing was written")
    versions = packages() | {name: version(name) for name in ("verl", "trl")}
    about = {**commit(), "hardware": hardware(), "packages": versions}
    result = {**about, "pairs": chosen.pairs, "rows": rows}
    publish(result, as_markdown(result), Path(__file__))


if __name__ == "__main__":
    main()
