"""Compare the results here with the committed ones: data outputs with dvc.lock, runs made here with those in git."""

import subprocess
from dataclasses import dataclass
from typing import Any

import pandas as pd

from repro import paths
from repro.errors import Refused
from repro.experiments.results.repeated import REPEATED, sentence
from repro.files import read_parquet
from repro.pipeline.lock import recorded_stages, stages_in

RISK = 0.01  # of calling a true repetition none


class NothingToVerify(Refused):
    """One sentence: what is missing, and the remedy."""


@dataclass(frozen=True)
class Verification:
    """`same`, `different`: data outputs (everything below results/) by path; `missing`: in the committed lock only.
    `repeated`: how this machine's runs compare with those in git (repro.experiments.results.repeated), a row per arm;
    None where none of them is in git."""

    same: list[str]
    different: list[str]
    missing: list[str]
    repeated: pd.DataFrame | None
    confidence: float = 0.95

    @property
    def holds(self) -> bool:
        """Whether no data output is missing and the differences to the baseline lie outside their prediction intervals
        no more often than chance allows (`plausible`). Where bits differ and the runs are not known, it does not."""
        if self.missing or (self.different and self.repeated is None):
            return False
        return self.repeated is None or plausible((~self.repeated["inside"]).sum(), len(self.repeated), self.confidence)

    def sentences(self) -> str:
        """The result in words."""
        total = len(self.same) + len(self.different) + len(self.missing)
        lines = [f"{len(self.same)} of {total} data outputs are bit-identical to the committed dvc.lock."]
        if self.missing:
            lines.append(f"Not there: {', '.join(self.missing)}; run `dvc repro` first.")
        if self.different:
            lines.append(f"Different: {', '.join(self.different)}.")
        if self.repeated is not None:
            lines.append(f"{sentence(self.repeated, self.confidence)}.")
            for row in self.repeated[~self.repeated["inside"]].to_dict("records"):
                lines.append("Outside: {arm}: {difference:+.4f}, expected {low:+.4f} to {high:+.4f}.".format(**row))
        return "\n".join(lines)


def verify(revision: str = "HEAD", confidence: float = 0.95) -> Verification:
    """Compare the working tree's dvc.lock with that of a commit, and its runs with those in git."""
    expected = data_outputs(stages_in(_committed(revision, "dvc.lock").encode(), f"dvc.lock at {revision}"))
    if not expected:
        raise NothingToVerify(f"dvc.lock at {revision} names no data to verify against: name another commit")
    # A fresh clone has the lock but no data: what is not on disk was not computed here.
    actual = {path: md5 for path, md5 in data_outputs(_locked()).items() if (paths.ROOT / path).exists()}
    same = [path for path, digest in expected.items() if actual.get(path) == digest]
    different = [path for path, digest in expected.items() if actual.get(path) not in (digest, None)]
    missing = [path for path in expected if path not in actual]
    table = paths.RESULTS / "study" / REPEATED
    repeated = read_parquet(table, "dvc repro results", ["seeds", "same_bits", "inside"]) if table.exists() else None
    return Verification(same, different, missing, repeated, confidence)


def plausible(outside: int, differences: int, confidence: float) -> bool:
    """Whether at least so many of the differences would lie outside intervals of that confidence in more than `RISK` of
    all repetitions, were they independent (they share a baseline, so the risk is somewhat larger)."""
    from scipy.stats import binom

    return bool(binom.sf(outside - 1, differences, 1 - confidence) > RISK)


def data_outputs(stages: dict[str, Any]) -> dict[str, str]:
    """{path: md5} of every output below results/, by path."""
    outputs = [out for stage in stages.values() for out in stage.get("outs", [])]
    return dict(sorted((out["path"], out["md5"]) for out in outputs if out["path"].startswith("results/")))


def _locked() -> dict[str, Any]:
    if not (paths.ROOT / "dvc.lock").exists():
        raise NothingToVerify("there is no dvc.lock here: run `dvc repro` first")
    return recorded_stages()


def _committed(revision: str, name: str) -> str:
    if not revision:  # to git, what is staged
        raise NothingToVerify("no commit is named: give one, such as HEAD")
    command = ["git", "show", "--end-of-options", f"{revision}:{name}"]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, errors="replace")
    if done.returncode:
        why = done.stderr.strip()[:200]
        raise NothingToVerify(f"git has no {name} at {revision[:80]} to verify against: {why}")
    return done.stdout
