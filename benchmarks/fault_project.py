"""A copy of this checkout in which commands are started, their processes found and killed, and results compared."""

import hashlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import psutil
import yaml

from benchmarks.copies import copy_project
from benchmarks.faults import Fault, silent

COPIED = (
    *("params.yaml", "dvc.yaml", ".dvcignore", ".gitignore", ".dvc/config"),
    *("configs", "docs/methods.md", "notebooks", "src"),
)
STAGES = ("manifest", "policy", "profile", "report", "train")
TOKEN = "REPRO_FAULTS"  # a variable of the environment by which a command's processes are found
GONE_SECONDS = 60.0  # where each process has a core
LIMIT_SECONDS = 900.0
# The smallest settings under which each stage still does something between its start and its end.
SMALL = {
    "task": {"train_queries": 24, "evaluation_queries": 12, "pretraining_queries": 200},
    "policy": {"steps": 40, "batch": 8, "hidden": 32, "describe_groups": 1},
    "engine": {"steps": 12, "rollouts_per_step": 16, "minibatch": 8, "max_new_tokens": 32, "checkpoint_every": 2},
    "evaluation": {"budgets": 2, "budget_gflops": 1, "samples": 1, "final_samples": 1},
}
ROLES = {  # of processes, by a word of their command line
    "worker": "--multiprocessing-fork",
    "pool": "repro.engine.crew",
    "kernel": "ipykernel_launcher",
    "stage": "repro.pipeline",
    "atlas": "repro.atlas",
    "verl": "repro.verl",
    "ray": "ray::",
}
LEADING = ("first", "stage", "all")  # roles of the processes that a user calls, or DVC
# Where a run tells its step: ours, by arm and seed (repro.engine.progress), and verl's.
TOLD = re.compile(r"(?P<arm>\S+)  seed (?P<seed>\d+)  step +(?P<step>\d+)|\bstep:(?P<of_verl>\d+) - ")


class Project:
    """A copy at scale `smoke`, cut down to `arms` and the stages whose runs are long; `one`: to a run and a worker."""

    def __init__(self, folder: Path, arms: Iterable[str] = ("grpo", "cost-aware"), one: bool = False):
        self.folder = folder
        if (folder / "params.yaml").exists():
            return
        copy_project(folder, COPIED)
        params = yaml.safe_load((folder / "params.yaml").read_text())
        params["scale"] = "smoke"
        chosen = {name: arm for name, arm in params["arms"].items() if name in arms}
        # So small a policy solves nothing; with coins for rewards every step trains all the same.
        params["arms"] = {name: arm | {"reward": "coin_flip"} for name, arm in chosen.items()}
        params["atlas_arms"] = {}
        params["primaries"] = [name for name in params["primaries"] if name in arms]
        for section in ("fidelity", "drift", "parity"):
            params[section]["arms"] = [name for name in params[section]["arms"] if name in arms]
        for section, values in SMALL.items():
            params["scales"]["smoke"][section] |= values
        stages = yaml.safe_load((folder / "dvc.yaml").read_text())["stages"]
        kept = {name: stages[name] for name in STAGES if not (one and name == "profile")}
        if one:
            params["scales"]["smoke"]["seeds"] = [0]
            params["scales"]["smoke"]["engine"]["workers"] = 1
            kept["train"]["do"]["deps"].remove("results/profile")
        self._write("params.yaml", params)
        self._write("dvc.yaml", {"stages": kept})
        for command in (["git", "init", "-q"], ["git", "add", "-A"]):
            subprocess.run(command, cwd=folder, check=True)

    def _write(self, name: str, content: dict) -> None:
        (self.folder / name).write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))

    def command(self, *words: str, cwd: Path | None = None, first: Path | None = None) -> "Command":
        """`first`: a folder whose modules are imported instead of others."""
        search = [str(path) for path in (first, self.folder / "src") if path]
        return Command(words, cwd or self.folder, self.folder, os.pathsep.join(search))

    def done(self, *words: str, cwd: Path | None = None) -> str:
        """What a command that has to succeed printed."""
        command = self.command(*words, cwd=cwd)
        if command.wait() != 0:
            raise RuntimeError(f"{' '.join(words)} fails: {command.said[-2000:]}")
        return command.said

    def hashes(self, *folders: str) -> dict[str, str]:
        """{file: hash} below some folders."""
        files = [path for folder in folders for path in sorted((self.folder / folder).rglob("*")) if path.is_file()]
        return {str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def remove(self, *names: str) -> None:
        for name in names:
            path = self.folder / name
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True) if path.is_file() else None

    def checkpoints(self) -> dict[Path, int]:
        """{folder of a run: step} of the checkpoints that are there: our engine's, and verl's last ones."""
        import torch

        found = {}
        for path in (self.folder / "build").rglob("state.pt"):
            with suppress(FileNotFoundError):  # the run has just been finished
                found[path.parent] = torch.load(path, weights_only=True)["step"]
        for path in (self.folder / "build").rglob("latest_checkpointed_iteration.txt"):
            with suppress(ValueError):  # it is being written
                found[path.parent] = int(path.read_text())
        return found


class Command:
    """A command under way, and its processes: all that inherit its token, and all that they start."""

    def __init__(self, words: tuple[str, ...], cwd: Path, project: Path, search: str):
        self.token, self.log = secrets.token_hex(8), project / f"said-{secrets.token_hex(4)}.txt"
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        # Without SHELL, as under cron or in a container, DVC takes sh, which stays between it and a stage.
        ours = ("REPRO_", "JPY_", "GIT_", "SHELL")
        clean = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        one = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "DVC_NO_ANALYTICS")}
        environment = {**clean, **one, "PATH": path, "PYTHONPATH": search, TOKEN: self.token}
        self.began, self._met = time.monotonic(), set()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                words, cwd=cwd, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self, seconds: float = LIMIT_SECONDS) -> int | None:
        """The exit status; None if it does not end in time. It does not outlive whoever waits for it."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        except BaseException:
            for process in self.processes():
                process.kill()
            raise

    def processes(self) -> list[psutil.Process]:
        """All that are alive, the first one included. Ray's workers write their titles over their environment, and are
        found as children of a process that has the token; once met, also when that one is gone."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(TOKEN) == self.token:
                    self._met |= {process, *process.children(recursive=True)}
        return sorted(filter(_alive, self._met), key=lambda process: process.pid)

    def of(self, role: str) -> list[psutil.Process]:
        """The processes of a role; `first` is the command itself, `all` are all."""
        if role == "first":
            return [psutil.Process(self.process.pid)] if self.process.poll() is None else []
        alive = self.processes()
        return alive if role == "all" else [each for each in alive if any(ROLES[role] in word for word in _words(each))]

    def left(self) -> int:
        """How many processes outlive the command by more than GONE_SECONDS, more on a busy machine, where one that is
        being started needs minutes to see that it is no longer needed; `said` names them, and they are killed."""
        limit = time.monotonic() + GONE_SECONDS * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        while (alive := self.processes()) and time.monotonic() < limit:
            time.sleep(0.3)
        if alive:
            with self.log.open("a") as log:
                print("\noutlived by", ", ".join(map(_named, alive)), file=log)
        for process in alive:
            process.kill()
        return len(alive)


def _alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _named(process: psutil.Process) -> str:
    """A process by its role, its state and the end of its command line."""
    words = _words(process)
    roles = [role for role, word in ROLES.items() if any(word in each for each in words)]
    with suppress(psutil.Error):
        return f"a {roles[0] if roles else 'process'} ({process.status()}: {' '.join(words[-3:])[:100]})"
    return "a process that has just ended"


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def struck(
    project: Project,
    command: Command,
    kind: str,
    what: str,
    role: str,
    name: str,
    moment: float,
    most: int,
) -> Fault | None:
    """Kill a process of `role` with the signal `name`, `moment` seconds after the command's start or as soon as there
    is one, and see what follows. None if the command ends first."""
    time.sleep(max(0.0, command.began + moment - time.monotonic()))
    while not (victims := command.of(role)) and command.process.poll() is None:
        time.sleep(0.2)
    if not victims:
        return None  # it ended before, and nothing was killed
    at = time.monotonic() - command.began
    can_tell = role in LEADING and bool(command.process.args[0] != "dvc" or command.of("stage"))  # DVC itself cannot
    for victim in victims if role == "all" else victims[-1:]:
        try:
            victim.send_signal(getattr(signal, name))
        except psutil.NoSuchProcess:
            continue
    status = command.wait()
    if status is None:
        command.process.kill()
    orphans, after = command.left(), project.checkpoints()
    lost = steps_lost(command.said, after) if status != 0 else 0
    said = command.said if status is not None else f"did not end within {LIMIT_SECONDS:g} s\n{command.said}\nhung"
    ended = status != 0
    return Fault(
        kind=kind,
        target=f"{role} of {what}",
        fault=name,
        at=f"{at:.0f} s",
        ended=ended,
        said=said,
        orphans=orphans + (status is None),
        lost=lost,
        most=most,
        silent=silent(name, ended, said) if can_tell else None,
    )


def steps_lost(said: str, kept: dict[Path, int]) -> int | None:
    """The most steps that a run has told of and has no checkpoint of; None if no run told of a step. A run that has
    ended has no checkpoint any more, and is none of them."""
    reached: dict[str, int] = {}
    for told in TOLD.finditer(said):
        run = "verl" if told["seed"] is None else f"train-{told['arm']}/seed-{told['seed']}"
        reached[run] = max(reached.get(run, 0), int(told["step"] or told["of_verl"]))
    steps = {"/".join(run.parts[-2:]) if run.name.startswith("seed-") else "verl": step for run, step in kept.items()}
    measured = [max(0, reached[run] - step) for run, step in steps.items() if run in reached]
    return max(measured, default=None)


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition comes true in time."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.2)
    return True
