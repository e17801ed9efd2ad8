"""configs/launch/Containerfile, as far as it can be checked without building it."""

import importlib
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

from packaging.utils import canonicalize_name

from repro.verl import version

ROOT = Path(__file__).resolve().parents[1]
TEXT = re.sub(r"^#.*\n", "", (ROOT / "configs/launch/Containerfile").read_text(), flags=re.M).replace("\\\n", " ")
LINES = [line.split(maxsplit=1) for line in TEXT.splitlines() if line.strip()]  # instruction, arguments
VERSIONS = tomllib.loads((ROOT / "environments/versions.toml").read_text())
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def arguments(instruction: str) -> list[str]:
    return [rest for name, rest in LINES if name == instruction]


def copied() -> list[str]:
    return [name for line in arguments("COPY") for name in line.split()[:-1]]


def test_every_instruction_parses_and_what_it_copies_is_in_the_repository():
    assert {name for name, _ in LINES} <= {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "CMD"}
    assert [line.split() for line in arguments("FROM")] == [["${VERL_IMAGE}"]]  # docker takes one word, or three
    vllm = VERSIONS["gpu"]["vllm"].replace(".", "")[:3]  # 0.24.0 is in tags of vllm024
    assert re.fullmatch(rf"VERL_IMAGE=verlai/verl:vllm{vllm}\.\w+", arguments("ARG")[0]) and LINES[0][0] == "ARG"
    assert [name for name in copied() if not (ROOT / name).exists()] == []
    assert [name for line in arguments("COPY") if (name := line.split()[-1]).startswith("/")] == []  # below WORKDIR
    assert all(re.fullmatch(r"\w+=\S+", pair) for line in arguments("ENV") for pair in line.split())
    for script in arguments("RUN"):
        subprocess.run(["sh", "-n", "-c", script], check=True)


def test_what_it_installs_is_what_the_locks_have():
    (script,) = arguments("RUN")
    words = shlex.split(script)
    install = words[words.index("install") :][: words[words.index("install") :].index("&&")]
    extras = install[install.index("--editable") + 1]
    assert set(re.fullmatch(r"\.\[([\w,]+)\]", extras)[1].split(",")) <= PYPROJECT["optional-dependencies"].keys()
    pinned = {canonicalize_name(name) for section in ("shared", "gpu") for name in VERSIONS[section]}
    assert {canonicalize_name(name) for name in install[install.index(extras) + 1 :]} <= pinned
    assert not re.findall(r"[\w-]+==[\d.]+", script)  # versions are pyproject.toml's alone
    assert f"verl=={VERSIONS['extras']['verl']['verl']}" in PYPROJECT["optional-dependencies"]["verl"]
    assert VERSIONS["extras"]["verl"]["verl"] == version.SUPPORTED
    program = words[words.index("-c") + 1]
    compile(program, "Containerfile", "exec")
    for module, names in re.findall(r"from ([\w.]+) import ([\w, ]+)", program):
        assert [name for name in names.split(", ") if not hasattr(importlib.import_module(module), name)] == []
