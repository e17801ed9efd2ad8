"""All paths of the project; no other module spells one out.

The root is the nearest folder, from the working directory upwards, that contains `params.yaml` and `dvc.yaml`, so a
notebook opened in `notebooks/` and a stage started by DVC agree. `REPRO_ROOT` overrides it (for tests). Outside a
project it is the checkout of an editable installation. Installed from a wheel, the package has its own params.yaml and
configs (setup.py), and the root is the working directory.
"""

import os
from pathlib import Path

from repro.errors import Refused

PACKAGE = Path(__file__).resolve().parent
SHIPPED = PACKAGE / "shipped"  # in a wheel alone


class NoProject(Refused, FileNotFoundError):
    """One sentence: where the project was looked for."""


def find_root() -> Path:
    """The project's root folder; NoProject with the remedy if there is none."""
    if override := os.environ.get("REPRO_ROOT"):
        return Path(override).resolve()
    here = Path.cwd().resolve()
    marks = ("params.yaml", "dvc.yaml", *(("src/repro",) if SHIPPED.is_dir() else ()))  # not another project on DVC
    for folder in (here, *here.parents, *(() if SHIPPED.is_dir() else (PACKAGE.parents[1],))):
        if all((folder / mark).exists() for mark in marks):
            return folder
    if SHIPPED.is_dir():
        return here
    raise NoProject(
        f"no params.yaml next to a dvc.yaml in {here} or above it: run from inside the project, or set REPRO_ROOT to it"
    )


def _own(name: str) -> Path:
    """A file or folder of the project, or the wheel's copy of it."""
    shipped = SHIPPED / name
    return shipped if shipped.exists() and not (ROOT / name).exists() else ROOT / name


ROOT = find_root()
PARAMS = _own("params.yaml")
NOTEBOOKS = ROOT / "notebooks"
SOURCE = ROOT / "src" / "repro" if (ROOT / "src" / "repro").is_dir() else PACKAGE
CONFIGS = _own("configs")
CLAIMS = CONFIGS / "claims"  # the text of each claim, by id

RESULTS = ROOT / "results"  # data, determined by params.yaml and the code: bit-identical from run to run
TIMINGS = ROOT / "timings"  # seconds and hardware: they differ from run to run and are never compared
REPORTS = ROOT / "reports"  # one HTML per experiment
FIGURES = ROOT / "figures"  # small figures for the README, in git
TABLES = ROOT / "tables"  # small tables for the README, in git

BUILD = ROOT / "build"  # scratch: safe to delete
MANIFESTS = BUILD / "manifests"  # what each stage depends on: settings, notebook, modules, runs
EXECUTED = BUILD / "executed"  # the notebooks as they ran, errors included
SCRATCH = BUILD / "runs"  # what a run needs to know before it starts

RUNS = ROOT / "runs"  # the one store of runs
DESIGN = RUNS / "design.yaml"  # which runs are declared
BASE_POLICIES = RUNS / "policies"  # in git, as are panels and golden steps
PANELS = RUNS / "panels"  # tables of runs, by the panel of the design that they were made for
EVERY_PRICE = _own("runs/every_price.md")  # what the methods' runs ended at, for the same bill
GOLDEN = RUNS / "golden.csv"  # digests of golden steps: what the code of each arm computes, by kind of CPU


def find_here() -> Path:
    """The folder of the runs that were made on this machine. A temporary copy of DVC's shares its project's."""
    for folder in ROOT.parents:
        if folder.name == ".dvc" and (folder.parent / "params.yaml").exists():
            return folder.parent / "runs" / "here"
    return RUNS / "here"


HERE = find_here()

POLICY = RESULTS / "policy"
PROFILE = RESULTS / "profile"  # the base policy's success on each training query, one profile per seed
PROFILE_TIMINGS = TIMINGS / "profile"
