"""Is anything lost? Kills at random moments, full disks, cut files: after each one sentence, no orphan, the same bits.

    python -m benchmarks.faults [--minutes M] [--kinds run stage ...] [--seed S] [--folder FOLDER]
    python -m benchmarks.faults --table

Works on a copy of this checkout at scale `smoke`, in a temporary folder, whose path has a space in it. Every fault is a
row of benchmarks/faults.csv, to which a later call adds; benchmarks/faults.md counts them. The exit status is 1 if one
of this call's did not end well, or with --table one of all. Kinds:

    run     a training process: SIGKILL, SIGTERM, SIGINT, the tiny run of the tests
    stage   dvc repro of policy, profile, train, report: dvc, the stage, its kernel, the pool, a worker
    atlas   python -m repro.atlas run on a design of four runs: the command, a worker
    verl    python -m repro.verl, which needs `make extra-verl`
    files   a full disk, cut files, read-only results, two pipelines at once, a clock that jumps, other folders
"""

import argparse
import csv
import importlib
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import pandas as pd

from repro.errors import SEED, command, number

ROOT = Path(__file__).resolve().parents[1]
ROWS, TABLE = ROOT / "benchmarks" / "faults.csv", ROOT / "benchmarks" / "faults.md"
KINDS = {
    "run": "fault_runs",
    "stage": "fault_stages",
    "atlas": "fault_atlas",
    "verl": "fault_verl",
    "files": "fault_files",
}
TRACE = "Traceback (most recent call last)"
CAUGHT = ("SIGTERM", "SIGINT")  # signals after which a process can still speak
SENTENCE = re.compile(r"^repro\S*: .*\b(interrupted|terminated|ended)\b.*; ", re.MULTILINE)  # that it was stopped


class Unavailable(RuntimeError):
    """This fault cannot be made here."""


@dataclass(frozen=True)
class Settled:
    """What is known after the next run: `same` bits as without the fault; None: nothing to compare."""

    same: bool | None


@dataclass(frozen=True)
class Fault:
    """One fault and what followed. `at`: the moment; `ended`: whether it ended the command; `said`: what the command
    printed, of which a row keeps the last line; `orphans`: processes that outlived it; `lost`: steps to be made again,
    of which the checkpoints' distance `most` is allowed, None if it was not measured; `silent`: whether a signal that
    can be caught ended the command, and nothing said so, None for other endings and in rows of before it was asked."""

    kind: str
    target: str
    fault: str
    at: str
    ended: bool
    said: str
    orphans: int = 0
    lost: int | None = 0
    most: int = 0
    traceback: bool = False
    same: bool | None = None
    silent: bool | None = None

    def settled(self, settled: Settled) -> "Fault":
        """The row: with what the next run showed, and of what was said the last line."""
        lines = [line.strip() for line in self.said.splitlines() if line.strip()]
        last = re.sub(r"\S*/(?=[^/\s]+)", "", lines[-1])[:300] if lines else ""
        return replace(self, same=settled.same, traceback=TRACE in self.said, said=last)


def silent(signal_name: str, ended: bool, said: str) -> bool | None:
    """Whether nothing of what was said tells of the signal that ended a command; None for an ending of another kind."""
    return SENTENCE.search(said) is None if ended and signal_name in CAUGHT else None


@command(name="faults", interrupted="interrupted; its rows are kept, and the next call adds others")
def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=number(float, 0, 10**6), default=10.0, help="begin nothing after as many")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=SEED, default=0, help="of targets and moments")
    parser.add_argument("--folder", type=Path, help="of the copy; kept, and used again, if it is given")
    parser.add_argument("--table", action="store_true", help="only write the table of what is in the file of rows")
    chosen = parser.parse_args()
    before = 0 if chosen.table else len(kept())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also in a shell's background, where it would be ignored
    if not chosen.table:
        folder = chosen.folder or Path(tempfile.mkdtemp(prefix="faults-"))
        try:
            inflict(chosen.kinds, chosen.seed, 60 * chosen.minutes, folder / "a folder")
        finally:
            if chosen.folder is None:
                shutil.rmtree(folder, ignore_errors=True)
    rows = pd.read_csv(ROWS, keep_default_na=False)
    TABLE.write_text(table(rows))
    print(TABLE.read_text())
    return int(not well(rows[before:]).all())


def inflict(kinds: list[str], seed: int, seconds: float, folder: Path) -> None:
    """Faults of each kind in turn, until the time is up; their rows are kept as they come."""
    began, sources = time.monotonic(), {}
    for kind in kinds:
        folder.joinpath(kind).mkdir(parents=True, exist_ok=True)
        module = importlib.import_module(f"benchmarks.{KINDS[kind]}")
        sources[kind] = module.kills(seed, folder / kind, sum(row["kind"] == kind for row in kept()))
    while sources and time.monotonic() - began < seconds:
        for kind, source in list(sources.items()):
            for row in next_of(source):
                keep(row)
                good = "well" if well(pd.DataFrame([asdict(row)])).all() else "NOT WELL"
                print(f"{row.kind}: {row.fault} to {row.target} at {row.at}: {good}. {row.said}", flush=True)
            if source.gi_frame is None:  # it has ended
                del sources[kind]


def next_of(source: Iterator[Callable[[], list[Fault]]]) -> list[Fault]:
    """The rows of a source's next chain of faults; none at its end, nor where it cannot be made."""
    chain = next(source, None)
    try:
        return chain() if chain else []
    except Unavailable as reason:
        print(f"left out: {reason}", flush=True)
        return []


def keep(row: Fault) -> None:
    new = not ROWS.exists()
    with ROWS.open("a", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Fault)])
        if new:
            writer.writeheader()
        writer.writerow(asdict(row))


def kept() -> list[dict[str, str]]:
    """The rows of earlier calls."""
    if not ROWS.exists():
        return []
    with ROWS.open(newline="") as file:
        return list(csv.DictReader(file))


def well(rows: pd.DataFrame) -> pd.Series:
    """Which faults ended as they should."""
    told = ~rows["traceback"].astype(str).eq("True")
    same = ~rows["same"].astype(str).eq("False")
    said = ~rows["silent"].astype(str).eq("True")
    return told & same & said & (rows["orphans"] == 0) & (lost_of(rows) <= rows["most"])


def lost_of(rows: pd.DataFrame) -> pd.Series:
    """Steps lost, 0 where that was not measured."""
    return pd.to_numeric(rows["lost"], errors="coerce").fillna(0)


def table(rows: pd.DataFrame) -> str:
    """Markdown: a line for each kind, target and fault, and the sum."""
    rows = rows.assign(target=rows["target"].str.replace(r", .*", "", regex=True))
    heads = ["times", "could tell of it", "silent", "tracebacks", "orphans", "steps lost beyond a checkpoint"]
    heads = ["kind", "fault, to", *heads, "compared", "other bits"]
    lines = ["| " + " | ".join(heads) + " |", "|:--|:--" + "|--:" * (len(heads) - 2) + "|"]
    groups = [
        ((kind, f"{fault}, {target}"), own) for (kind, target, fault), own in rows.groupby(["kind", "target", "fault"])
    ]
    kills = rows[rows["fault"].str.startswith("SIG")]
    for (kind, what), own in [*groups, (("all kills", ""), kills), (("all", ""), rows)]:
        counts = [
            *(len(own), *_asked(own["silent"]), _asked(own["traceback"])[1], own["orphans"].sum()),
            *((lost_of(own) - own["most"]).clip(lower=0).sum(), _asked(own["same"])[0]),
            own["same"].astype(str).eq("False").sum(),
        ]
        lines.append(f"| {kind} | {what} | " + " | ".join(str(int(count)) for count in counts) + " |")
    return "\n".join(lines) + "\n"


def _asked(answers: pd.Series) -> tuple[int, int]:
    """How many rows answer, and how many with True."""
    text = answers.astype(str)
    return int(text.isin(["True", "False"]).sum()), int(text.eq("True").sum())


if __name__ == "__main__":
    sys.exit(importlib.import_module("benchmarks.faults").main())
