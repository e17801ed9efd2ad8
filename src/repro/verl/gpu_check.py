"""`make gpu-check`: ten minutes on one GPU that show whether the whole path holds there, as a table.

    python -m repro.verl.gpu_check [--output FOLDER] [--model MODEL] [--minutes N]

Each step is a command that one could give by hand; its output is in FOLDER. A step that fails does not stop the others.
Without a GPU: one sentence, and status 3.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from repro.errors import command, number
from repro.files import write_json, write_text
from repro.paths import BUILD, ROOT
from repro.stats.tables import markdown
from repro.verl import presets, ready, sums

PACKAGES = ("torch", "vllm", "verl", "flash-attn", "ray", "transformers")
PRESET = "gpu-smoke"
NO_GPU = 3  # the exit status without one
TIS = "algorithm.rollout_correction.rollout_is"
FLASH = "actor_rollout_ref.model.override_config.attn_implementation=flash_attention_2"

Metrics = list[dict[str, float]]  # what verl logged, a row for each step
Verdict = tuple[bool, str]


@dataclass(frozen=True)
class Step:
    """`command`: arguments of python -m; `judge`: from all steps' metrics, whether it held and the figures; `before`:
    what to do first; `folder`: of the run, below the output."""

    name: str
    command: tuple[str, ...]
    must: str
    judge: Callable[[Mapping[str, Metrics]], Verdict]
    folder: str
    before: Callable[[], None] = lambda: None


def steps(model: str, output: Path) -> list[Step]:
    """The runs, in order; a later one may read what an earlier one logged."""

    def train(folder: str, arm: str, *overrides: str) -> tuple[str, ...]:
        given = ("--arm", arm, "--preset", PRESET, "--model", model, "--output", str(output / folder))
        return ("repro.verl", *given, "trainer.logger=[console,file]", *overrides)

    asked = output / "sums.parquet"
    evaluation = ("repro.evaluation", model, str(asked), "--out", str(output / "evaluation"), "--engine", "vllm")
    evaluation += ("--samples", "4", "--max-new-tokens", "256")
    d3s = train("d3s", "d3s", "trainer.total_training_steps=3", "trainer.save_freq=1")
    short, again = "about a quarter kept, entropy, fewer tokens trained on", "goes on at step 3, its ledger too"
    flash = train("flash", "grpo", FLASH)
    return [
        Step("evaluation", evaluation, "vLLM takes our arguments", lambda _: (True, ""), "evaluation"),
        Step("grpo", train("grpo", "grpo"), "vLLM's and the trainer's probabilities agree, twice", agree, "grpo"),
        Step("d3s", d3s, short, selects, "d3s"),
        Step("resume", d3s, again, resumes, "d3s", lambda: rewind(output / "d3s", 2)),
        Step("zvf", train("zvf", "zvf-cost-aware", f"{TIS}=token"), "refills; ratios near 1", refills, "zvf"),
        Step("flash", flash, "flash-attn gives a response the probability that vLLM gives it", attends, "flash"),
    ]


def rewind(output: Path, step: int) -> None:
    """As if the run below `output` had been interrupted after `step`."""
    for latest in output.rglob("latest_checkpointed_iteration.txt"):
        latest.write_text(str(step))
        for later in latest.parent.glob("global_step_*"):
            if int(later.name.rpartition("_")[2]) > step:
                shutil.rmtree(later)


def agree(runs: Mapping[str, Metrics]) -> Verdict:
    close, figures = _probabilities(runs["grpo"])
    return len(runs["grpo"]) == 2 and close, figures


def _probabilities(rows: Metrics) -> Verdict:
    """Whether vLLM and the trainer give a response the same probability."""
    gap = max(row["training/rollout_probs_diff_mean"] for row in rows)
    correlation = min(row["training/rollout_actor_probs_pearson_corr"] for row in rows)
    return gap <= 0.01 and correlation > 0.99, f"difference {gap:.4f}, Pearson {correlation:.4f}"


def selects(runs: Mapping[str, Metrics]) -> Verdict:
    rows = runs["d3s"]
    kept, entropy = rows[0]["arm/drawn"], rows[0]["actor/entropy"]
    mine, grpo = (runs[name][0]["arm/trained_tokens"] for name in ("d3s", "grpo"))
    held = 0.15 <= kept <= 0.4 and entropy > 0 and mine < grpo
    return held, f"kept {kept:.2f}, entropy {entropy:.2f}, {mine:.0f} tokens trained, GRPO {grpo:.0f}"


def resumes(runs: Mapping[str, Metrics]) -> Verdict:
    (row,), before = runs["resume"], runs["d3s"][1]
    tokens = row["arm/generated_tokens"], before["arm/generated_tokens"]
    held = row["training/global_step"] == 3 and tokens[0] > tokens[1]
    return held, f"step {row['training/global_step']:.0f}, {tokens[1]:.0f} tokens before, {tokens[0]:.0f} after"


def refills(runs: Mapping[str, Metrics]) -> Verdict:
    rows = runs["zvf"]
    ratio = max(abs(row["rollout_corr/rollout_is_mean"] - 1.0) for row in rows)
    rounds = sum(row["arm/refill_rounds"] for row in rows)
    return ratio < 0.05 and rounds > 0, f"{rounds:.0f} refills, ratios within {ratio:.3f} of 1"


def attends(runs: Mapping[str, Metrics]) -> Verdict:
    """GRPO's first loss is 0 whatever the attention; its probabilities are not."""
    return _probabilities(runs["flash"])


def metrics_of(folder: Path) -> Metrics:
    """What verl's logger `file` wrote of a run, its training steps alone."""
    found = sorted(folder.rglob("metrics.jsonl"))
    lines = found[-1].read_text().splitlines() if found else []
    rows = [json.loads(line)["data"] for line in lines]
    return [row for row in rows if "training/global_step" in row]


def held(step: Step, status: int, runs: Mapping[str, Metrics], log: str) -> Verdict:
    """Whether a step did what it must; a missing figure is a failure that names it."""
    if status:
        lines = [line for line in log.splitlines() if line.strip()]
        return False, f"ended with status {status}: {lines[-1][:120] if lines else 'no output'}"
    try:
        return step.judge(runs)
    except (KeyError, IndexError, ValueError) as error:
        return False, f"verl logged too little ({type(error).__name__}: {error})"


def environment() -> Verdict:
    """The versions, and the driver."""
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{package} missing")
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        card = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout.strip().splitlines()[0]
    except (OSError, IndexError, subprocess.TimeoutExpired):
        card = "nvidia-smi does not answer"
    wanting = [line for line in versions if line.endswith("missing") and not line.startswith("flash-attn")]
    return not wanting and "," in card, f"{card}; {', '.join(versions)}"


def run(step: Step, folder: Path, seconds: float) -> tuple[int, str]:
    """Status and output of a step; 124 where it took longer than `seconds`."""
    command = [sys.executable, "-m", *step.command]
    try:
        done = subprocess.run(
            command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=max(1.0, seconds)
        )
        status, text = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        status, text = 124, (error.stdout or b"").decode(errors="replace") + "\nthe time for this check was used up"
    write_text(text, folder / f"{step.name}.log")
    return status, text


def check(model: str, output: Path, seconds: float) -> pd.DataFrame:
    """Every step's row: step, seconds, held, must, measured. Also written as table.json, for the record."""
    asked = [row for row in sums.rows() if row["extra_info"]["index"] < 64]
    output.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(asked).to_parquet(output / "sums.parquet")
    fine, versions = environment()
    rows = [{"step": "environment", "seconds": 0, "held": fine, "must": "versions, driver", "measured": versions}]
    runs: dict[str, Metrics] = {}
    started = time.monotonic()
    for step in steps(model, output):
        if step.name == "flash" and importlib.util.find_spec("flash_attn") is None:
            continue  # an option
        begun = time.monotonic()
        step.before()
        status, log = run(step, output, seconds - (begun - started))
        runs[step.name] = metrics_of(output / step.folder)
        good, measured = held(step, status, runs, log)
        took = round(time.monotonic() - begun)
        rows.append({"step": step.name, "seconds": took, "held": good, "must": step.must, "measured": measured})
        print(f"{step.name}: {'held' if good else 'FAILED'} ({took} s) {measured}", file=sys.stderr, flush=True)
    write_json(rows, output / "table.json")
    return pd.DataFrame(rows)


@command
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m repro.verl.gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=BUILD / "gpu-check" / time.strftime("%Y%m%d-%H%M%S"))
    parser.add_argument(
        "--model", default=presets.find(PRESET).model, help="a hub id or a folder; default: %(default)s"
    )
    parser.add_argument(
        "--minutes", type=number(float, 0, 10**6), default=30.0, help="after which what is left is given up"
    )
    chosen = parser.parse_args(arguments)
    if ready.gpus_here() == 0:
        print(
            "repro: there is no GPU here, so nothing was checked: `make gpu-check` needs one with 16 GB",
            file=sys.stderr,
        )
        return NO_GPU
    os.environ.pop("RAY_ADDRESS", None)  # the check is of this machine
    table = check(chosen.model, chosen.output.resolve(), 60 * chosen.minutes)
    print(markdown(table.assign(held=table["held"].map({True: "yes", False: "NO"}))), end="")
    return 0 if table["held"].all() else 1


if __name__ == "__main__":
    sys.exit(main())
