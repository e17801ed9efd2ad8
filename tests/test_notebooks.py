"""Notebooks: clean in git, thin, their imports declared, and each runs by itself with its default parameters."""

import ast
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import ROOT

from repro import settings as settings_module
from repro.pipeline.closure import closure, code_hash, imported_modules, notebook_code, notebook_hash
from repro.pipeline.manifest import differences, manifest
from repro.pipeline.stages import all_stages, stage

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SETTINGS = settings_module.load(scale="smoke")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_hold_no_output_and_no_logic(path):
    notebook = json.loads(path.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells), "clear the outputs before committing"
    assert sum("parameters" in cell["metadata"].get("tags", []) for cell in cells) == 1
    assert max(len("".join(cell["source"]).splitlines()) for cell in cells) <= 25
    tree = ast.parse(notebook_code(path))
    assert not any(isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.While)) for node in ast.walk(tree))


@pytest.mark.parametrize(
    "name", ["theory sgd", "policy", "policy_report", "train cost-aware", "train grpo", "report grpo", "results"]
)
def test_a_stage_depends_on_exactly_the_modules_that_it_imports(name):
    """The manifest's list against sys.modules after the imports of the notebook and of the arm's parts have run."""
    entry = stage(*name.split()[:1], SETTINGS, *name.split()[1:])
    imports = [
        line
        for node in ast.walk(ast.parse(notebook_code(entry.notebook)))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for line in [ast.unparse(node)]
    ]
    code = "\n".join([*imports, *(f"import {module}" for module in entry.modules), "import sys"])
    code += (
        "\nprint(*{m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'repro' and m.__file__}, sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    loaded = {line for line in done.stdout.splitlines() if line.endswith(".py")}
    declared = {str(ROOT / path) for path in manifest(entry, SETTINGS)["modules"] if path.endswith(".py")}
    if entry.report:  # the page around the notebook is made by the stage, not by the notebook
        declared -= {str(path) for path in (ROOT / "src/repro/report").rglob("*.py")}
    assert loaded == declared


def test_training_depends_on_its_own_sampler_and_on_no_plot():
    grpo, cost_aware = (manifest(stage("train", SETTINGS, arm), SETTINGS)["modules"] for arm in ("grpo", "cost-aware"))
    assert set(cost_aware) - set(grpo) == {
        "src/repro/samplers/cost_aware.py",
        "src/repro/selection/__init__.py",
        "src/repro/selection/importance.py",
    }
    assert not any(path.startswith(("src/repro/plots", "src/repro/report", "src/repro/pipeline")) for path in grpo)


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
    assert [str(path.relative_to(source)) for path in files] == ["__init__.py", "a.py", "b.py", "c/__init__.py"]
    assert imported_modules("from repro.x import y, z\nimport numpy") == {"repro", "repro.x", "repro.x.y", "repro.x.z"}


def test_comments_and_docstrings_are_not_code_but_a_number_is(tmp_path):
    path = tmp_path / "m.py"

    def hash_of(text):
        path.write_text(text)
        return code_hash(path)

    plain = hash_of("def f(x):\n    return x + 1\n")
    assert hash_of('def f(x):\n    """Add one."""\n    # by hand\n    return (x + 1)\n') == plain
    assert hash_of("def f(x):\n    return x + 2\n") != plain


def test_running_a_notebook_does_not_change_its_hash(tmp_path):
    notebook = json.loads(NOTEBOOKS[0].read_text())
    before = notebook_hash(NOTEBOOKS[0])
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"execution_count": 3, "outputs": [{"output_type": "stream", "name": "stdout", "text": ["1"]}]}
    executed = tmp_path / "executed.ipynb"
    executed.write_text(json.dumps(notebook))
    assert notebook_hash(executed) == before


def test_differences_name_settings_and_modules():
    before = {"settings": {"engine": {"steps": 60}}, "notebook": {"n": "1"}, "modules": {"a.py": "1", "b.py": "1"}}
    now = {"settings": {"engine": {"steps": 80}}, "notebook": {"n": "1"}, "modules": {"a.py": "2", "c.py": "1"}}
    assert differences(before, now) == [
        "engine.steps: 60 → 80",
        "a.py changed",
        "b.py is no longer used",
        "c.py is new",
    ]


def test_a_manifest_read_back_is_the_same_manifest():
    now = manifest(stage("train", SETTINGS, "cost-aware"), SETTINGS)
    assert differences(json.loads(json.dumps(now)), now) == []


def test_a_title_is_no_reason_to_train():
    arm = SETTINGS.arms["grpo"].model_copy(update={"title": "Another name"})
    renamed = SETTINGS.model_copy(update={"arms": {**SETTINGS.arms, "grpo": arm}})
    entry = stage("train", SETTINGS, "grpo")
    assert manifest(entry, SETTINGS) == manifest(entry, renamed)
    assert len({s.name for s in all_stages(SETTINGS)}) == len(all_stages(SETTINGS)) == 4 + 2 * len(SETTINGS.arms)


@pytest.mark.slow
def test_every_notebook_runs_by_itself_with_its_defaults(smoke):
    def execute(path):
        target = smoke.folder / f"build/alone-{path.name}"
        smoke.run("papermill", "--no-progress-bar", path.name, str(target), cwd=smoke.folder / "notebooks")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(execute, NOTEBOOKS))
