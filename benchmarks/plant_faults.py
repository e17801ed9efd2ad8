"""Are the tests worth their minutes? Plant eleven faults, one at a time, and see which test catches each.

    python -m benchmarks.plant_faults [NAME ...]

A fault is a line of src/repro with something wrong in it, planted in a temporary copy; nothing here is changed. Exit
status 1 if a fault goes unnoticed, if the tests fail without one, or if its line is no longer in the code.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.copies import ROOT, copy_project

COPIED = ("params.yaml", "dvc.yaml", "pyproject.toml", "configs", "src", "tests", "benchmarks")


@dataclass(frozen=True)
class Fault:
    """`line` becomes `wrong`, wherever it lies in src/repro (`file`: its name, where several files have the line);
    `tests`, files or single tests, should then fail."""

    name: str
    about: str
    line: str
    wrong: str
    tests: tuple[str, ...]
    file: str = "*.py"


FAULTS = [
    Fault(
        "sampler-weight",
        "samplers: a draw weighs p instead of 1/p",
        "weights_M = 1.0 / (np.count_nonzero(p_N) * p_N[drawn_M])",
        "weights_M = np.count_nonzero(p_N) * p_N[drawn_M]",
        ("test_samplers.py",),
    ),
    Fault(
        "weight-centre",
        "weights: 1/(N p), not re-centred around 1",
        "weights_M = 1.0 / (np.count_nonzero(p_N) * p_N[drawn_M])",
        "weights_M = 1.0 / (len(p_N) * p_N[drawn_M])",
        ("test_samplers.py",),
    ),
    Fault(
        "token-mask",
        "masks: the loss ignores the selection of tokens",
        "coefficients_M_T = token_coefficients(rollouts.response_mask_N_T,",
        "coefficients_M_T = token_coefficients("
        "np.arange(rollouts.response_mask_N_T.shape[1]) < rollouts.response_tokens_N[:, None],",
        ("test_engine_update.py",),
    ),
    Fault(
        "ledger-prompt",
        "ledger: training on a prompt is not charged",
        "return rollouts.costs_N[wanted_M][first_U]",
        "return rollouts.response_tokens_N[wanted_M][first_U]",
        ("test_engine_update.py", "test_train.py"),
    ),
    Fault(
        "resume-optimiser",
        "resume: the optimiser's moments start at zero",
        'trainer.optimiser.load_state_dict(state["optimiser"])',
        "pass",
        ("test_checkpoint.py", "test_train.py"),
    ),
    Fault(
        "resume-stream",
        "resume: the stream of planned queries starts over",
        'trainer.plan.skip(state["groups_taken"])',
        "pass",
        ("test_checkpoint.py", "test_train.py"),
    ),
    Fault(
        "interval",
        "statistics: a 90% bootstrap interval, called 95%",
        "tails = 50 * (1 - statistics.confidence), 50 * (1 + statistics.confidence)",
        "tails = 100 * (1 - statistics.confidence), 100 * statistics.confidence",
        ("test_study_statistics.py", "test_study.py"),
    ),
    Fault(
        "student",
        "statistics: a 90% t interval, called 95%",
        "return float(stdtrit(freedom, (1 + confidence) / 2))",
        "return float(stdtrit(freedom, confidence))",
        ("test_study_statistics.py",),
    ),
    Fault(
        "holm",
        "statistics: Holm's p-values without the running maximum",
        "np.maximum.accumulate(steps_M)",
        "steps_M",
        ("test_study_statistics.py",),
    ),
    Fault(
        "clip-high",
        "objectives: the clip's upper end below 1",
        "clamp(1.0 - clip_low, 1.0 + clip_high) * advantages_N_1",
        "clamp(1.0 - clip_low, 1.0 - clip_high) * advantages_N_1",
        ("test_objectives.py",),
        file="grpo.py",
    ),
    Fault(
        "zero-variance",
        "advantages: in a group of equal rewards, rounding noise divided by δ",
        "np.where(silent_N, 0.0, centred_N / np.where(silent_N, 1.0, std_Q[index_N] + delta))",
        "centred_N / (std_Q[index_N] + delta)",
        ("test_objectives.py",),
    ),
]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plant_faults", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"faults; all if left out: {', '.join(names())}")
    chosen = parser.parse_args(arguments).names
    if unknown := set(chosen) - set(names()):
        parser.error(f"there is no fault {sorted(unknown)[0]!r}")
    faults = [fault for fault in FAULTS if not chosen or fault.name in chosen]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        copy = copy_project(Path(folder), COPIED)
        failed, seconds = first_failure(copy, tuple(dict.fromkeys(test for fault in faults for test in fault.tests)))
        print(f"without a fault: {failed or 'all pass'} ({seconds:.0f} s)\n", flush=True)
        print("| fault | caught by | seconds |\n|---|---|--:|", flush=True)
        for fault in faults:
            try:
                source = plant(fault, copy / "src/repro")
            except LookupError as error:
                missed += 1
                print(f"| {fault.about} | not planted: {error} | |", flush=True)
                continue
            caught, seconds = first_failure(copy, fault.tests)
            shutil.copy(ROOT / source.relative_to(copy), source)
            missed += caught is None
            print(f"| {fault.about} | {caught or '**nothing**'} | {seconds:.0f} |", flush=True)
    print(f"\n{len(faults) - missed} of {len(faults)} faults are caught.")
    return int(missed > 0 or failed is not None)


def names() -> list[str]:
    return [fault.name for fault in FAULTS]


def plant(fault: Fault, source: Path) -> Path:
    """Replace the fault's line and return its file. LookupError if the line is not in exactly one place."""
    files = [path for path in sorted(source.rglob(fault.file)) if fault.line in path.read_text()]
    count = sum(path.read_text().count(fault.line) for path in files)
    if count != 1:
        raise LookupError(
            f"{fault.name}: {fault.line!r} is in {count} places of src/repro and should be in one: update the fault"
        )
    text = files[0].read_text()
    files[0].write_text(text.replace(fault.line, fault.wrong))
    return files[0]


def first_failure(project: Path, tests: tuple[str, ...]) -> tuple[str | None, float]:
    """(the first of `tests` that fails, None if all pass; seconds). RuntimeError if pytest itself does not run."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("REPRO_")}
    environment["PYTHONPATH"] = str(project / "src")
    started = time.monotonic()
    done = subprocess.run(
        [*command, *(f"tests/{test}" for test in tests)], cwd=project, env=environment, capture_output=True, text=True
    )
    seconds = time.monotonic() - started
    if done.returncode == 0:
        return None, seconds
    failed = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", done.stdout, re.MULTILINE)
    if done.returncode != 1 or failed is None:
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return failed[1], seconds


if __name__ == "__main__":
    sys.exit(main())
