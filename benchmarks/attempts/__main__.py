"""Is nonsense let in? Wrong params.yaml, wrong command lines, attacks: each is one sentence, and nothing is executed.

    python -m benchmarks.attempts [--kinds edits commands attacks] [--only GROUP ...] [--told]

Every attempt is made in a process of its own, in a temporary copy of what a project has, and how it ended is named by
rule: a sentence, a list of options, a traceback, and so on (`named`). What may be accepted is listed as such beside its
attempt, with the reason. benchmarks/attempts.json counts the outcomes of each group when it was last tried, and
attempts.md is the table of them. Kinds:

    edits      of params.yaml, through the settings and every arm, as `python -m repro.pipeline check` does; some by it
    commands   command lines of every entry point
    attacks    what a model, a data set, a file or somebody's sampler could bring in; odd surroundings
"""

import argparse
import importlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.attempts.attempt import WRONG, Attempt, made
from benchmarks.attempts.table import counted, table
from benchmarks.copies import ROOT, copy_project
from repro.errors import Refused, brief, command

COUNTS, TABLE = ROOT / "benchmarks" / "attempts.json", ROOT / "benchmarks" / "attempts.md"
KINDS = ("edits", "commands", "attacks")  # the modules that list them
COPIED = ("params.yaml", "dvc.yaml", "dvc.lock", "configs", "notebooks", "examples", "atlas")


@command(name="attempts", interrupted="interrupted; groups that are done are kept")
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attempts", description=__doc__.split("\n")[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--only", nargs="+", default=[], metavar="GROUP", help="only these, as the table names them")
    parser.add_argument("--told", action="store_true", help="print what was said to each attempt")
    chosen = parser.parse_args(arguments)
    wrong = 0
    with project():
        at = begun()
        for kind in chosen.kinds:
            for group, attempts in groups_of(kind, chosen.only).items():
                rows = [told(attempt, chosen.told) for attempt in attempts]
                wrong += sum(row[1] in WRONG for row in rows)
                keep(kind, group, {"at": at} | counted(rows))
    print(f"{sum(os.times()[:4]):.0f} s of the CPU; {wrong or 'none'} not well")
    TABLE.write_text(table(json.loads(COUNTS.read_text())))
    print(TABLE.read_text())
    return int(wrong > 0)


def groups_of(kind: str, only: Sequence[str]) -> dict[str, list[Attempt]]:
    """The attempts of a kind by their groups, or by those that are named."""
    groups: dict[str, list[Attempt]] = {}
    for attempt in importlib.import_module(f"benchmarks.attempts.{kind}").attempts():
        if not only or attempt.group in only:
            groups.setdefault(attempt.group, []).append(attempt)
    if only and not groups:
        raise Refused(f"--only: {kind} have no group {brief(only[0])}: benchmarks/attempts.md names them")
    return groups


def told(attempt: Attempt, all_of_it: bool) -> tuple[Attempt, str]:
    """The attempt and its outcome, which is printed where it is wrong, or where all are to be."""
    outcome, said = made(attempt)
    if all_of_it or outcome in WRONG:
        print(f"{attempt.kind}, {attempt.group}: {attempt.name}: {outcome.upper()}. {said}", flush=True)
    return attempt, outcome


def begun() -> str:
    """The commit, and the day."""
    from repro.report.provenance import commit

    of = commit(ROOT)
    return f"{of['commit']}{' with changes' if of['dirty'] else ''}, {time.strftime('%Y-%m-%d', time.gmtime())}"


def keep(kind: str, group: str, counts: Mapping[str, Any]) -> None:
    """Put the counts of a group in the place of those of an earlier call."""
    kept = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    kept.setdefault(kind, {})[group] = counts
    COUNTS.write_text(json.dumps({name: kept[name] for name in KINDS if name in kept}, indent=1) + "\n")


@contextmanager
def project() -> Iterator[None]:
    """Inside, the working directory and REPRO_ROOT are a temporary copy of this project; before `repro.paths` is
    imported, so that all of it works there."""
    before, folder = os.getcwd(), Path(tempfile.mkdtemp(prefix="attempts-"))
    try:
        root = copy_project(folder / "a project", COPIED)
        root.joinpath("src").symlink_to(ROOT / "src")  # a copy would be other code than runs
        os.environ |= {"REPRO_ROOT": str(root), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}
        sys.path.insert(0, str(ROOT))  # where the working directory was
        os.chdir(root)
        yield
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
