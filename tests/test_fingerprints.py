"""Training's fingerprint holds what changes its numbers, and nothing else."""

import json
import shutil

import pytest
from conftest import ROOT

from repro import paths
from repro import settings as settings_module
from repro.pipeline import closure, manifest, stage

SETTINGS = settings_module.load(scale="smoke")
TRAINING = ("train-",)


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The sources in a folder of their own, to be edited; manifests read them there."""
    for name in ("src/repro", "notebooks", "configs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    source = tmp_path / "src" / "repro"
    for module, name, value in (
        (paths, "ROOT", tmp_path),
        (paths, "SOURCE", source),
        (paths, "NOTEBOOKS", tmp_path / "notebooks"),
        (closure.closure, "__defaults__", (source,)),
        (closure.module_file, "__defaults__", (source,)),
    ):
        monkeypatch.setattr(module, name, value)
    return tmp_path


def stale(before: dict) -> set[str]:
    """The stages whose manifest is no longer what it was."""
    now = {entry.name: manifest.manifest(entry, SETTINGS) for entry in stage.all_stages(SETTINGS)}
    return {name for name, content in now.items() if content != before[name]}


def edit(path, line="EDITED = 1\n"):
    if path.suffix == ".ipynb":
        notebook = json.loads(path.read_text())
        notebook["cells"][0]["source"] = ["# Other words\n", "and more of them"]
        path.write_text(json.dumps(notebook))
    else:
        path.write_text(path.read_text() + line)


def test_what_changes_no_number_of_training_makes_no_training_stage_stale(copied):
    before = {entry.name: manifest.manifest(entry, SETTINGS) for entry in stage.all_stages(SETTINGS)}
    root = copied / "src" / "repro"
    apart = "pipeline report plots stats experiments evaluation paper_scale theory settings"
    for folder in apart.split():
        for path in sorted((root / folder).rglob("*.py")):
            edit(path)
    for name in ("training.py", "arms.py", "notebook.py", "errors.py", "stops.py"):
        edit(root / name)
    for name in ("runs.py", "crew.py", "workers.py", "checkpoint.py", "progress.py", "live.py"):
        edit(root / "engine" / name)
    for path in sorted((copied / "notebooks").rglob("*.ipynb")):
        edit(path)
    changed = stale(before)
    assert {"results", "drift", "report-grpo", "theory-sgd"} <= changed
    assert {name for name in changed if name.startswith(TRAINING) or name == "policy"} == set()


def test_what_changes_the_numbers_of_training_makes_it_stale(copied):
    before = {entry.name: manifest.manifest(entry, SETTINGS) for entry in stage.all_stages(SETTINGS)}
    edit(copied / "src/repro/methods/samplers/cost_aware.py")
    trained = {name for name in stale(before) if name.startswith("train-")}
    assert {"train-cost-aware", "train-cost-aware-uniform"} <= trained
    assert trained.isdisjoint({"train-grpo", "train-zvf", "train-d3s", "train-random-quarter", "train-sgpo"})
    edit(copied / "src/repro/engine/update.py")
    trained = {name for name in stale(before) if name.startswith(TRAINING)}
    assert trained == {name for name in before if name.startswith(TRAINING)}


def test_a_comment_a_docstring_or_the_words_of_an_error_make_nothing_stale(copied):
    before = {entry.name: manifest.manifest(entry, SETTINGS) for entry in stage.all_stages(SETTINGS)}
    root = copied / "src/repro"
    edit(root / "engine/update.py", "# a comment\n")
    reworded(root / "engine/update.py", "One optimiser step on each of", "One step on each of")
    reworded(
        root / "engine/update.py", "a gradient norm of {norm}: the run", "the gradient has the norm {norm:.2g}; the run"
    )
    reworded(root / "files.py", "is not there yet: run", "does not exist yet; run")
    assert {name for name in stale(before) if not name.startswith("report-")} == set()  # an arm's report shows code


def reworded(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1, f"{path.name} does not hold {old!r} once"
    path.write_text(text.replace(old, new))
