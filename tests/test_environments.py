"""The environments agree with environments/versions.toml, the one place that holds versions."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "environments"
sys.path.insert(0, str(FOLDER))
import resolve  # noqa: E402

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = {"cpu": resolve.CPU, "gpu": resolve.GPU | resolve.FLASH} | {
    f"extras-{extra}": resolve.pins(f"extras.{extra}") for extra in resolve.EXTRAS
}


def lock(name: str) -> dict[str, str]:
    """Canonical package name to version, of one lock."""
    lines = [line.split(";")[0].strip() for line in (FOLDER / f"{name}.txt").read_text().splitlines()]
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    versions = {canonicalize_name(package): version for package, version in pairs}
    assert len(versions) == len(pairs), f"{name}.txt names a package twice"
    return versions


def needed(*extras: str) -> list[str]:
    """What extras require beside each other (`NAME[engine]`)."""
    lines = [line for extra in extras for line in PYPROJECT["optional-dependencies"][extra]]
    return [line for line in lines if "[" not in line]


@pytest.mark.parametrize("name", LOCKS)
def test_lock_holds_the_pins(name: str) -> None:
    locked = lock(name)
    differing = {
        p: locked.get(canonicalize_name(p)) for p, v in LOCKS[name].items() if locked.get(canonicalize_name(p)) != v
    }
    assert not differing, f"{name}.txt differs from versions.toml: run `make lock`"


def test_conda_environments_are_the_generated_ones() -> None:
    for file, text in resolve.environment_ymls().items():
        assert (ROOT / file).read_text() == text, "run `make lock`"
    (card,) = [part["pip"] for part in yaml.safe_load(text)["dependencies"] if isinstance(part, dict)]
    assert card[:2] == ["--constraint environments/cpu.txt", "--editable ."] and len(card) == 2 + len(resolve.CPU)
    assert not any(line.startswith("flash-attn") for line in resolve.environment_ymls()["environment.yml"].split("- "))


def test_extras_add_to_the_cpu_lock_and_agree_with_each_other() -> None:
    seen = lock("cpu")
    for extra in resolve.EXTRAS:
        added = lock(f"extras-{extra}")
        assert not added.keys() & lock("cpu").keys()
        assert {p: v for p, v in added.items() if seen.setdefault(p, v) != v} == {}


def test_cpu_locks_leave_out_what_cuda_builds_bring() -> None:
    packages = [p for name in LOCKS if name != "gpu" for p in lock(name)]
    assert [p for p in packages if re.match(r"nvidia-|cuda-|triton|torchvision|torchaudio|torchcodec", p)] == []


def test_locks_hold_no_address_and_no_local_version() -> None:
    files = [*ROOT.glob("*.lock"), *FOLDER.glob("*.txt"), *ROOT.glob("environment*.yml")]
    assert len(files) >= 2 + len(LOCKS)
    pattern = re.compile(r"https?://|\bfile:|--(extra-)?index|--find-links|\+cpu|\+cu\d")
    assert [
        f"{file.name}: {line}" for file in files for line in file.read_text().splitlines() if pattern.search(line)
    ] == []


def test_pyproject_admits_the_pins_and_names_every_direct_package() -> None:
    base = (*PYPROJECT["dependencies"], *needed("engine", "study", "dev"))
    ranges = {"cpu": base, "gpu": [*base, *needed("verl", "gpu", "flash")]}
    ranges |= {f"extras-{extra}": needed(extra) for extra in resolve.EXTRAS if extra != "vllm"}  # no extra of pip's
    for name in ranges:
        pins = LOCKS[name]
        requirements = {r.name: r.specifier for r in map(Requirement, ranges[name])}
        narrowed = LOCKS["cpu"] if name.startswith("extras-") else {}  # an extra may narrow what it adds to
        assert requirements.keys() - narrowed.keys() == pins.keys(), name
        known = {**narrowed, **pins}
        assert [f"{p}=={known[p]}" for p, range in requirements.items() if not range.contains(known[p])] == [], name


@pytest.mark.parametrize(("vllm", "runs"), [(0, "shell"), (1, ".venv")])
def test_gpu_check_runs_where_vllm_is(tmp_path: Path, vllm: int, runs: str) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for place, status in (("shell", vllm), (".venv", 1)):
        python = tmp_path / place / "bin/python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit {status}\necho {place} "$@"\n')
        python.chmod(0o755)
    path = f"{tmp_path / 'shell/bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["make", "--no-print-directory", "gpu-check", "MODEL=a/model"],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{runs} -m repro.verl.gpu_check --model a/model\n", done.stderr


def test_everything_that_names_the_pythons_names_those_of_the_locks() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    assert tuple(workflow["jobs"]["core"]["strategy"]["matrix"]["python"]) == resolve.PYTHONS
    within = SpecifierSet(PYPROJECT["requires-python"])
    minor = [f"3.{n}" for n in range(8, 20)]
    assert tuple(version for version in minor if f"{version}.0" in within) == resolve.PYTHONS
    named = [c.rsplit(" ", 1)[1] for c in PYPROJECT["classifiers"] if c.startswith("Programming Language")]
    assert tuple(named) == resolve.PYTHONS
    assert all(f"({version.replace('.', ', ')})" in (ROOT / "Makefile").read_text() for version in resolve.PYTHONS)


def test_installed_versions_are_the_pinned_ones() -> None:
    def installed(package: str) -> str | None:
        try:
            return metadata.version(package).split("+")[0]
        except metadata.PackageNotFoundError:
            return None

    if installed(PYPROJECT["name"]) is None:
        pytest.skip("repro runs from its source tree, outside the environments of `make setup` and environment.yml")
    pins = resolve.GPU if installed("vllm") else resolve.CPU
    assert {p: installed(p) for p, v in pins.items() if installed(p) != v} == {}, "run `make setup`"
