"""Notebooks: clean in git, in short cells, and a stage declares exactly what its notebook imports."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from conftest import ROOT
from jupyter_server.services.contents.filemanager import FileContentsManager
from traitlets.config import Config

from repro import settings as settings_module
from repro.closure import closure, code_hash, imported_modules, notebook_code, notebook_hash
from repro.paths import DESIGN
from repro.pipeline.manifest import differences, manifest
from repro.pipeline.stage import all_stages, stage
from repro.runs import golden
from repro.settings.text import read_mapping

NOTEBOOKS = {
    str(path.relative_to(ROOT / "notebooks").with_suffix("")): path
    for path in sorted((ROOT / "notebooks").rglob("*.ipynb"))
    if ".ipynb_checkpoints" not in path.parts
}
LONGEST_CELL = 40  # lines
SETTINGS = settings_module.load(scale="smoke")
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
INNER_IMPORTS = """
import ast, sys


def executed(tree):
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            yield node
            yield from executed(node)


done = set()
while new := {name for name in sys.modules if name.split(".")[0] == "repro"} - done:
    for name in new:
        for node in executed(ast.parse(open(sys.modules[name].__file__).read())):
            if isinstance(node, (ast.Import, ast.ImportFrom)) and "repro" in ast.unparse(node):
                exec(ast.unparse(node), {})
    done |= new
print(*(sys.modules[name].__file__ for name in done), sep="\\n")
"""


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_cells_are_short_and_tutorials_show_what_they_print(name):
    notebook = json.loads(NOTEBOOKS[name].read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert max(len("".join(cell["source"]).splitlines()) for cell in cells) <= LONGEST_CELL
    if name.startswith("tutorials/"):
        assert any(cell["outputs"] for cell in cells), "run the tutorial before committing: it shows its figures in git"
        errors = [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"]
        assert not errors
    else:
        assert sum("parameters" in cell["metadata"].get("tags", []) for cell in cells) == 1


def test_a_notebook_that_was_only_run_is_no_change_to_git(tmp_path):
    """By the filter of `make setup`, which leaves what git has of every notebook but the tutorials as it is."""
    clone, strip = tmp_path / "clone", Path(sys.executable).with_name("nbstripout")
    if subprocess.run(["git", "clone", "-q", ROOT, clone], capture_output=True).returncode:
        pytest.skip("these files are not in git")

    def of(*command, **options) -> str:
        return subprocess.run(command, cwd=clone, capture_output=True, text=True, check=True, **options).stdout

    others = [path for path in (clone / "notebooks").glob("*/*.ipynb") if path.parent.name != "tutorials"]
    of(strip, "--verify", "--keep-id", *others)
    (clone / ".venv/bin").mkdir(parents=True)
    (clone / ".venv/bin/nbstripout").symlink_to(strip)
    [setting] = [line for line in of("make", "-n", ".venv/.ready").splitlines() if "git config" in line]
    of("sh", "-c", setting)
    path = clone / "notebooks/theory/subset.ipynb"
    own = {"c": Config(), "__name__": "jupyter_server_config"}
    exec((ROOT / "environments/jupyter_server_config.py").read_text(), own)
    jupyter = FileContentsManager(root_dir=str(clone), config=own["c"])
    model = jupyter.get(str(path.relative_to(clone)))
    run = nbformat.from_dict(model["content"])
    for cell in run.cells:
        if cell.cell_type == "code":
            cell |= {"execution_count": 3, "outputs": [nbformat.v4.new_output("stream", text="0.5")]}
            cell.metadata["execution"] = {"iopub.execute_input": "2026-01-01T00:00:00Z"}
    run.metadata["language_info"] |= {"version": "3.13.1", "codemirror_mode": {"name": "ipython", "version": 3}}
    jupyter.save(model | {"content": run}, model["path"])
    assert of("git", "status", "--porcelain") == "" and '"0.5"' in path.read_text()
    run.cells[0].source += "!"
    jupyter.save(model | {"content": run}, model["path"])
    assert of("git", "status", "--porcelain") == f" M {model['path']}\n"
    assert of("git", "diff", "--numstat").split()[:2] == ["1", "1"]


@pytest.mark.parametrize(("session", "lines"), [("JPY_SESSION_NAME", 2), ("NONE", 0)])
def test_a_kernel_that_an_editor_starts_reloads_edited_modules(monkeypatch, session, lines):
    for name in ("JPY_SESSION_NAME", "VSCODE_PID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(session, "a.ipynb")
    own = {"c": Config()}
    exec((ROOT / "environments/ipython_kernel_config.py").read_text(), own)
    assert len(own["c"].InteractiveShellApp.get("exec_lines", [])) == lines


@pytest.mark.parametrize(
    "name",
    ["policy", "theory sgd"],  # those that ask for no runs: what trains is in the keys of runs
)
def test_a_stage_depends_on_exactly_the_modules_that_it_imports(name):
    """The manifest's list against sys.modules, once the imports of the notebook and of the arm's parts have run, and
    those that modules make inside functions."""
    entry = stage(*name.split()[:1], SETTINGS, *name.split()[1:])
    imports = [
        ast.unparse(node)
        for node in ast.walk(ast.parse("\n".join(notebook_code(entry.notebook))))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    if "code" in entry.meta:  # the notebook only starts a job: what counts is what the job runs
        imports = [f"import {module}" for module in entry.meta["code"]]
    modules = [*entry.meta.get("also", ()), *entry.methods(SETTINGS)]
    code = "\n".join([*imports, *(f"import {module}" for module in modules), INNER_IMPORTS])
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    loaded = {line for line in done.stdout.splitlines() if line.endswith(".py")}
    loaded -= {str(path) for path in (ROOT / "src/repro/settings").glob("*.py")}  # which stand in it by value
    declared = {str(ROOT / path) for path in manifest(entry, SETTINGS)["modules"] if path.endswith(".py")}
    if entry.report:  # the page around the notebook is made by the stage, not by the notebook
        declared -= {str(path) for path in (ROOT / "src/repro/report").rglob("*.py")}
    declared -= {str(ROOT / entry) for entry in entry.meta.get("files", ())}
    loaded -= {str(ROOT / "src/repro" / name) for name in ("errors.py", "stops.py", "__init__.py")}  # words; doors
    read_by_settings = {str(ROOT / "src/repro/paths.py")}
    assert loaded - read_by_settings == declared - read_by_settings


def test_a_run_depends_on_its_own_parts():
    def files(arm: str) -> set[str]:
        parts = [f"repro.methods.{package}.{name}" for package, name, _ in SETTINGS.arm(arm).calls]
        return {path.relative_to(ROOT / "src/repro").as_posix() for path in closure({"repro.engine.run", *parts})}

    assert files("cost-aware") - files("grpo") == {
        "methods/samplers/cost_aware.py",
        "methods/selection/__init__.py",
        "methods/selection/importance.py",
    }
    assert files("zvf") - files("grpo") == {"methods/filters/zero_variance.py"}
    assert not any(file.startswith(("runs/", "pipeline/", "plots/", "report/", "stats/")) for file in files("zvf"))


def changed_by(kind: str, item: str | None, **changes) -> list[str]:
    """What differs in a stage's manifest when sections of the settings are replaced."""
    other = SETTINGS.model_copy(update=changes)
    return differences(*(manifest(stage(kind, s, item), s) for s in (SETTINGS, other)))


def test_a_stage_reads_what_concerns_it_and_nothing_else(monkeypatch):
    """An arm's page depends on its own runs and the baseline's; those of an arm whose weights are studied, on when.
    What code computes is another test's."""
    monkeypatch.setattr(golden, "computes", lambda asked, say=print: ["the same"] * len(asked))
    engine = SETTINGS.engine.model_copy(update={"workers": 7, "checkpoint_every": 3})
    assert changed_by("report", "cost-aware", engine=engine) == []
    engine = SETTINGS.engine.model_copy(update={"learning_rate": 1e-3})
    assert changed_by("report", "cost-aware", engine=engine) == ["cost-aware changed", "grpo changed"]
    pods = {"pods": SETTINGS.arms["pods"].model_copy(update={"aggregation": "token-mean"})}
    assert changed_by("report", "cost-aware", arms={**SETTINGS.arms, **pods}) == []
    assert changed_by("dynamics", None, arms={**SETTINGS.arms, **pods}) == ["pods changed"]
    drift = SETTINGS.drift.model_copy(update={"snapshot_every": 1})
    assert "sgpo changed" in changed_by("drift", None, drift=drift)
    assert "mixes" not in "".join(changed_by("longer", None, engine=engine))


def test_closure_follows_imports_of_every_form(tmp_path):
    source = tmp_path / "repro"
    texts = {
        "__init__": "",
        "a": "import repro.b",
        "b": "def f():\n    from repro.c import x",
        "c/__init__": "x = 1",
        "d": "",
    }
    for name, text in texts.items():
        (source / f"{name}.py").parent.mkdir(parents=True, exist_ok=True)
        (source / f"{name}.py").write_text(text)
    files = closure({"repro", "repro.a"}, source)
    assert [str(path.relative_to(source)) for path in files] == ["a.py", "b.py", "c/__init__.py"]
    assert imported_modules("from repro.x import y, z\nimport numpy") == {"repro", "repro.x", "repro.x.y", "repro.x.z"}
    assert imported_modules("from repro import load, train") == {"repro", "repro.front", "repro.training"}


def test_comments_and_docstrings_are_not_code_but_a_number_is(tmp_path):
    path = tmp_path / "m.py"

    def hash_of(text):
        path.write_text(text)
        return code_hash(path)

    plain = hash_of("def f(x):\n    return x + 1\n")
    assert hash_of('def f(x):\n    """Add one."""\n    # by hand\n    return (x + 1)\n') == plain
    assert hash_of("def f(x):\n    return x + 2\n") != plain


def test_running_a_notebook_does_not_change_its_hash(tmp_path):
    notebook = json.loads(NOTEBOOKS["jobs/train"].read_text())
    before = notebook_hash(NOTEBOOKS["jobs/train"])
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"execution_count": 3, "outputs": [{"output_type": "stream", "name": "stdout", "text": ["1"]}]}
    executed = tmp_path / "executed.ipynb"
    executed.write_text(json.dumps(notebook))
    assert notebook_hash(executed) == before


def test_differences_name_settings_and_modules():
    alike = {"notebook": {"n": "1"}, "runs": {"grpo": "1"}}
    before = {"settings": {"engine": {"steps": 60}}, "modules": {"a.py": "1", "b.py": "1"}, **alike}
    now = {"settings": {"engine": {"steps": 80}}, "modules": {"a.py": "2", "c.py": "1"}, **alike}
    assert differences(before, now) == [
        "engine.steps: 60 → 80",
        "a.py changed",
        "b.py is no longer used",
        "c.py is new",
    ]


def test_whatever_verl_runs_of_ours_is_a_reason_to_compare_the_engines_again():
    run = {f"src/repro/verl/{path.name}" for path in (ROOT / "src/repro/verl").glob("*.py")}
    beside = ("gpu_check", "evaluate", "seeds")  # commands, no part of a training
    run -= {f"src/repro/verl/{name}.py" for name in beside}
    for kind in ("parity_train", "parity"):
        assert run <= set(manifest(stage(kind, SETTINGS), SETTINGS)["modules"])


def test_no_name_of_params_yaml_is_in_a_shells_command():
    commands = [stage.get("do", stage)["cmd"] for stage in STAGES.values()]
    assert len(commands) > 15 and not [command for command in commands if "${" in command]


def test_every_stage_of_dvc_yaml_has_its_manifest_and_the_other_way_round():
    items = {"${arms}": SETTINGS.arms, "${theory}": type(SETTINGS.theory).model_fields}
    wanted = set()
    for kind, entry in STAGES.items():
        each = entry.get("foreach")
        keys = each if isinstance(each, list) else items[each] if each else [None]
        wanted |= {kind if key is None else f"{kind}-{key}" for key in keys}
    names = [s.name for s in all_stages(SETTINGS)]
    assert wanted - {"manifest"} == set(names) and len(set(names)) == len(names)


def test_the_manifest_notices_an_edit_of_every_file_that_a_stage_hashes():
    noticed = STAGES["manifest"]["deps"]
    metas = [stage.get("do", stage).get("meta", {}) for stage in STAGES.values()]
    files = {name for meta in metas for name in meta.get("files", [])}
    files |= {f"runs/panels/{name}" for meta in metas for name in meta.get("runs", [])}
    assert len(files) > 20
    assert [name for name in files if not any(f"{name}/".startswith(f"{dep}/") for dep in noticed)] == []


def test_a_page_declares_the_panels_that_it_names():
    panels = {name for name in read_mapping(DESIGN)["panels"] if "-" in name} - {"token-mean"}  # an average too
    for kind, entry in STAGES.items():
        if notebook := entry.get("meta", {}).get("notebook"):
            quoted = set(re.findall(r'"([\w-]+)"', "\n".join(notebook_code(ROOT / "notebooks" / notebook))))
            assert quoted & panels <= set(entry["meta"].get("runs", [])), kind


@pytest.mark.parametrize("study", type(SETTINGS.theory).model_fields)
def test_a_theory_notebook_opened_by_hand_refuses_what_params_yaml_could_not_give_it(study):
    first, *_, code = _code_up_to(NOTEBOOKS[f"theory/{study}"], "check_parameters(")
    cell = {}
    exec(first, cell)
    exec(code, dict(cell))  # as it stands
    with pytest.raises(settings_module.SettingsError, match=r"the notebook.s parameters: seed is -1: .* greater than"):
        exec(code, cell | {"seed": -1})


def _code_up_to(path, wanted: str) -> list[str]:
    """The sources of a notebook's code cells, up to the one with `wanted`."""
    cells = ["".join(c["source"]) for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    [last] = [place for place, source in enumerate(cells) if wanted in source]
    return cells[: last + 1]
