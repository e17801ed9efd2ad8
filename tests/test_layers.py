"""Layers, beyond what import-linter sees, which leaves out a cycle through a package's own file, `__init__.py`; and
what it makes of an experiment that is new."""

import json
import os
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest
from conftest import ROOT


def test_no_file_imports_itself_by_way_of_others():
    """Imports inside functions count. CycleError lists the files of a cycle."""
    graph = grimp.build_graph("repro", cache_dir=None)
    TopologicalSorter({file: graph.find_modules_directly_imported_by(file) for file in graph.modules}).prepare()


def linted(folder: Path, imports: dict[str, str]) -> str:
    """What import-linter says, by the contracts about experiments, of a package `repro` with experiments a, b, claims
    and results; `imports`: for a module, the one that it imports."""
    experiments = folder / "repro/experiments"
    for package in (folder / "repro", experiments, *(experiments / name for name in ("a", "b", "claims", "results"))):
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "part.py").touch()
    for module, other in imports.items():
        path = experiments / module.replace(".", "/")
        (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).write_text(
            f"import repro.experiments.{other}\n"
        )
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    chosen = [contract for contract in contracts if "repro.experiments." in json.dumps(contract)]
    lines = ['[tool.importlinter]\nroot_package = "repro"']
    for contract in chosen:
        lines += ["[[tool.importlinter.contracts]]", *(f"{key} = {json.dumps(contract[key])}" for key in contract)]
    (folder / "pyproject.toml").write_text("\n".join(lines))
    command = Path(sys.executable).with_name("lint-imports")
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([command, "--no-cache"], cwd=folder, env=environment, capture_output=True, text=True)
    assert len(chosen) == 2 and "Could not" not in done.stdout, done.stdout + done.stderr
    return done.stdout if done.returncode else ""


@pytest.mark.parametrize(
    ("imports", "broken"),
    [
        ({"results": "a.part", "results.part": "claims", "claims": "b.part", "claims.part": "a"}, ""),
        ({"a": "b.part"}, "repro.experiments.a is not allowed to import repro.experiments.b"),
        ({"b.part": "results"}, "repro.experiments.b is not allowed to import repro.experiments.results"),
        ({"a.part": "claims.part", "claims.part": "b"}, "repro.experiments.a is not allowed to import"),
        (
            {"claims.part": "results.part"},
            "repro.experiments.claims is not allowed to import repro.experiments.r",
        ),
    ],
)
def test_a_new_experiment_is_held_to_the_others_contract_without_being_named(tmp_path, imports, broken):
    said = linted(tmp_path, imports)
    assert broken in said and bool(broken) == bool(said)
