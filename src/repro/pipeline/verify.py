"""Compare the results here with the committed ones: data outputs with dvc.lock, then the figures of the arms."""

import io
import math
import subprocess
from dataclasses import dataclass
from typing import Any

import pandas as pd
import yaml

from repro import paths
from repro import settings as settings_module
from repro.errors import Refused
from repro.experiments.results.figures import figures_of_arms
from repro.files import read_parquet

EVALUATIONS = "tables/evaluations.parquet"  # relative to the root, and in git


class NothingToVerify(Refused):
    """One sentence: what is missing, and the remedy."""


@dataclass(frozen=True)
class Verification:
    """`same`, `different`: data outputs (everything below results/) by path; `missing`: in the committed lock only.
    `inside`, `outside`: the figures of arms with an interval that depend on differing data (of the arm, the baseline or
    the base policy), made from tables/evaluations.parquet, as "arm: name value, expected low to high".

    The interval is the committed one stretched by √2 about its value: it covers the true mean, about which the mean of
    a second study scatters as much again. In an equivalent study, about one figure in twenty lies outside.
    """

    same: list[str]
    different: list[str]
    missing: list[str]
    inside: list[str]
    outside: list[str]

    @property
    def holds(self) -> bool:
        """Whether no data output is missing and at most one in ten of the affected figures lies outside."""
        return not self.missing and len(self.outside) <= (len(self.inside) + len(self.outside)) / 10

    def sentences(self) -> str:
        """The result in words."""
        total = len(self.same) + len(self.different) + len(self.missing)
        lines = [f"{len(self.same)} of {total} data outputs are bit-identical to the committed dvc.lock."]
        if self.missing:
            lines.append(f"Not there: {', '.join(self.missing)}; run `dvc repro` first.")
        if self.different:
            lines.append(f"Different: {', '.join(self.different)}.")
            figures = len(self.inside) + len(self.outside)
            lines.append(
                f"Of the {figures} figures with an interval that depend on them, {len(self.inside)} lie within the "
                "interval that the committed runs give, stretched by √2 for two studies."
            )
        lines += [f"Outside: {entry}." for entry in self.outside]
        return "\n".join(lines)


def verify(revision: str = "HEAD") -> Verification:
    """Compare the working tree's dvc.lock and evaluations with those of a commit."""
    expected = data_outputs(yaml.safe_load(_committed(revision, "dvc.lock").decode()))
    # A fresh clone has the lock but no data: what is not on disk was not computed here.
    actual = {path: md5 for path, md5 in data_outputs(_lock()).items() if (paths.ROOT / path).exists()}
    same = [path for path, digest in expected.items() if actual.get(path) == digest]
    different = [path for path, digest in expected.items() if actual.get(path) not in (digest, None)]
    missing = [path for path in expected if path not in actual]
    inside, outside = [], []
    if different:
        before = figures(pd.read_parquet(io.BytesIO(_committed(revision, EVALUATIONS))))
        now = figures(read_parquet(paths.ROOT / EVALUATIONS, "dvc repro results"))
        changed = {path.rpartition("/")[2] for path in different}
        all_arms = {"policy", yaml.safe_load(_committed(revision, "params.yaml").decode())["baseline"]} & changed
        inside, outside = compare(before, now, set(before) if all_arms else changed & set(before))
    return Verification(same, different, missing, inside, outside)


def figures(evaluations: pd.DataFrame) -> dict[str, dict[str, float | None]]:
    """{arm: {figure: value}} by the present params.yaml."""
    return figures_of_arms(evaluations, settings_module.load())


def data_outputs(lock: dict[str, Any]) -> dict[str, str]:
    """{path: md5} of every output below results/, by path."""
    outputs = [out for stage in lock.get("stages", {}).values() for out in stage.get("outs", [])]
    return {
        out["path"]: out["md5"] for out in sorted(outputs, key=lambda out: out["path"]) if out["path"][:8] == "results/"
    }


def compare(before: dict[str, Any], now: dict[str, Any], arms: set[str]) -> tuple[list[str], list[str]]:
    """(inside, outside): each figure of `arms` with `_low` and `_high` in `before`, against that interval stretched."""
    inside, outside = [], []
    for arm in sorted(arms):
        for name, low in before[arm].items():
            figure = name.removesuffix("_low")
            high, value = before[arm].get(f"{figure}_high"), now.get(arm, {}).get(figure)
            if name == figure or None in (low, high, before[arm][figure]):
                continue
            centre = before[arm][figure]
            low, high = (round(centre + math.sqrt(2) * (end - centre), 6) for end in (low, high))
            entry = f"{arm}: {figure} {value}, expected {low} to {high}"
            (inside if value is not None and low <= value <= high else outside).append(entry)
    return inside, outside


def _lock() -> dict[str, Any]:
    path = paths.ROOT / "dvc.lock"
    if not path.exists():
        raise NothingToVerify("there is no dvc.lock here: run `dvc repro` first")
    try:
        return dict(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValueError, TypeError) as error:
        why = " ".join(str(error).split())[:200]
        raise NothingToVerify(
            f"{path} is no lock of DVC ({why}): restore it, as with `git checkout dvc.lock`"
        ) from error


def _committed(revision: str, name: str) -> bytes:
    command = ["git", "show", f"{revision}:{name}"]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip()
        raise NothingToVerify(f"git has no {name} at {revision} to verify against: {why}")
    return done.stdout
