"""What an edit of the code makes stale: of runs only those whose code it is, of stages those that it concerns."""

import json
import shutil

import pytest
from conftest import ROOT

from repro import closure, paths
from repro import settings as settings_module
from repro.pipeline import manifest, stage
from repro.policy.model import SHIPPED
from repro.runs import golden
from repro.runs.key import Asked
from repro.settings.text import read_mapping

SETTINGS = settings_module.load(scale="smoke")
RUNS = {arm: "" for arm in SETTINGS.arms}  # in place of keys, which an edit of a copy of the code does not change


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The sources in a folder of their own, to be edited; manifests read them there."""
    for name in ("src/repro", "notebooks", "configs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    source = tmp_path / "src" / "repro"
    for name, value in {"ROOT": tmp_path, "SOURCE": source, "NOTEBOOKS": tmp_path / "notebooks"}.items():
        monkeypatch.setattr(paths, name, value)
    for function in (closure.closure, closure.module_file):
        monkeypatch.setattr(function, "__defaults__", (source,))
    return tmp_path


def manifests() -> dict:
    return {entry.name: manifest.manifest(entry, SETTINGS, RUNS) for entry in stage.all_stages(SETTINGS)}


def stale(before: dict) -> set[str]:
    """The stages whose manifest is no longer what it was, their runs apart."""
    return {name for name, content in manifests().items() if content != before[name]}


def code() -> dict[str, str]:
    """The hash of each arm's code, without which golden steps are not even made again."""
    golden._code.cache_clear()
    return {arm: golden.code_of(Asked(SETTINGS, arm, 0, SHIPPED)) for arm in SETTINGS.arms}


def edit(path, line="EDITED = 1\n"):
    if path.suffix == ".ipynb":
        notebook = json.loads(path.read_text())
        notebook["cells"][0]["source"] = ["# Other words\n", "and more of them"]
        path.write_text(json.dumps(notebook))
    else:
        path.write_text(path.read_text() + line)


def test_what_is_no_code_of_a_run_makes_no_golden_steps_again_and_retrains_nothing(copied):
    before, codes = manifests(), code()
    root = copied / "src" / "repro"
    for folder in ["pipeline", "report", "plots", "stats", "experiments", "evaluation", "theory", "settings", "runs"]:
        for path in sorted((root / folder).rglob("*.py")):
            edit(path)
    at_top = ("training.py", "arms.py", "notebook.py", "errors.py", "stops.py", "__init__.py")
    for name in (*at_top, *(f"engine/{part}.py" for part in ["runs", "crew", "workers", "checkpoint", "progress"])):
        edit(root / name)
    for path in sorted((copied / "notebooks").rglob("*.ipynb")):
        edit(path)
    changed = stale(before)
    assert {"results", "drift", "report-grpo", "theory-sgd"} <= changed and "policy" not in changed
    assert code() == codes


def test_an_edit_of_a_method_makes_the_golden_steps_of_its_arms_again_and_one_of_the_engine_all(copied):
    before, codes = manifests(), code()
    edit(copied / "src/repro/methods/samplers/cost_aware.py")
    other = {arm for arm, own in code().items() if own != codes[arm]}
    assert {"cost-aware", "cost-aware-uniform"} <= other
    assert other.isdisjoint({"grpo", "zvf", "d3s", "random-quarter", "sgpo"})
    edit(copied / "src/repro/engine/update.py")
    assert all(own != codes[arm] for arm, own in code().items())
    assert not {"report-grpo", "results", "dynamics", "mixes"} & stale(before)  # they depend on the keys of runs


def test_readmes_tables_and_the_index_make_no_report_stale(copied):
    before = manifests()
    for name in ("front_page.py", "picture.py", "index.py", "template/index.html.j2", "template/index.js"):
        edit(copied / "src/repro/report" / name)
    assert stale(before) == set()
    for name in ("safe.py", "template/report.html.j2"):
        before = manifests()
        edit(copied / "src/repro/report" / name)
        assert {"theory-sgd", "report-grpo", "results"} <= stale(before)


def test_a_panel_makes_those_pages_stale_that_show_it_and_a_new_one_none(copied, monkeypatch):
    before, design = manifests(), read_mapping(paths.DESIGN)
    monkeypatch.setattr(paths, "DESIGN", copied / "design.yaml")
    for panel, found in {"new": set(), "gates": {"gates"}, "words-held-out": {"language_model", "validity"}}.items():
        design["panels"].setdefault(panel, {})["question"] = "Another?"
        paths.DESIGN.write_text(json.dumps(design))
        assert stale(before) == found
        before = manifests()


def test_a_comment_a_docstring_or_the_words_of_an_error_make_nothing_stale(copied):
    before, codes = manifests(), code()
    root = copied / "src/repro"
    edit(root / "engine/update.py", "# a comment\n")
    reworded(root / "engine/update.py", "One optimiser step on each of", "One step on each of")
    reworded(root / "engine/update.py", "a gradient norm of {norm}: the run", "its norm is {norm:.2g}; the run")
    reworded(root / "files.py", "is not there yet: run", "does not exist yet; run")
    assert {name for name in stale(before) if not name.startswith("report-")} == set()  # an arm's report shows code
    assert code() == codes


def reworded(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1, f"{path.name} does not hold {old!r} once"
    path.write_text(text.replace(old, new))
