"""The checkpoints of a run, evaluated: merged from verl's shards, sampled and judged, put into one table.

A job is one checkpoint on one file of questions. Several GPUs, or several processes on a CPU, take jobs from one list,
a process each, so that none waits for another. What is finished is not done again.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pandas as pd

from repro.files import read_parquet, write_parquet, write_text
from repro.protocol.ledger import Ledger
from repro.protocol.saved import LEDGER
from repro.settings import SettingsError
from repro.settings.fields import COLDEST
from repro.stored import read_stored
from repro.verl.composed import recorded
from repro.verl.judged import OURS
from repro.verl.peaks import SOURCES, by_source

STEP = re.compile(r"global_step_(\d+)$")
STATE = "repro.json"  # next to each of verl's checkpoints
LATEST = "latest_checkpointed_iteration.txt"  # verl's, written when a checkpoint is whole
LAST = "data.pt"  # of a checkpoint's files, verl's last
AGAIN = "the same command"


@dataclass(frozen=True)
class Begun:
    """How a run was begun, as far as evaluations go: its seed and files of questions, the longest response, temperature
    and top-p of evaluations, options of the chat template, and its own reward function, None for math-verify."""

    seed: int
    files: tuple[str, ...]
    length: int
    temperature: float
    top_p: float
    template: Mapping[str, Any]
    reward: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Job:
    """`merge`: the command that makes the model, None where there is one; `evaluate`: that which samples and judges."""

    step: int
    data: str
    merge: tuple[str, ...] | None
    evaluate: tuple[str, ...]


def as_begun(folder: Path, otherwise: Begun) -> Begun:
    """By the configuration that is recorded in a run's folder; what it does not say is `otherwise`'s."""
    config = recorded(folder) or {}
    data, reward = _section(config, "data"), _section(config, "reward", "custom_reward_function")
    sampled = _section(config, "actor_rollout_ref", "rollout", "val_kwargs")
    files = data.get("val_files") or otherwise.files  # verl takes one, or a list
    heat = sampled.get("temperature", otherwise.temperature) if sampled.get("do_sample", True) else 0.0
    return replace(
        otherwise,
        seed=_section(config, "repro").get("seed", otherwise.seed),
        files=(files,) if isinstance(files, str) else tuple(files),
        length=data.get("max_response_length", otherwise.length),
        temperature=max(heat, COLDEST),  # 0 is greedy
        top_p=sampled.get("top_p", otherwise.top_p),
        template=data.get("apply_chat_template_kwargs") or {},
        reward=None if reward.get("path", OURS) == OURS else reward,
    )


def _section(config: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        config = config.get(name)
        if not isinstance(config, Mapping):
            return {}
    return config


def checkpoints(folder: Path) -> dict[int, Path]:
    """{step: folder} of a run's checkpoints, the best and the last, and of those that were merged before verl deleted
    them; SettingsError where there are none. One that a running run is writing is left out."""
    latest = folder / "checkpoints" / LATEST
    named = latest.read_text().strip() if latest.exists() else ""  # empty while verl writes it
    whole = int(named) if named.isdecimal() else sys.maxsize
    last = [path for path in folder.glob("checkpoints/global_step_*") if _step(path) <= whole]
    found = [*folder.glob("merged/global_step_*"), *folder.glob("best/global_step_*"), *last]
    steps = {_step(path): path for path in found if (path / "actor").is_dir() or (path / "config.json").exists()}
    if not steps:
        raise SettingsError(f"{folder} holds no checkpoint to evaluate: train it first, or copy it here")
    return dict(sorted(steps.items()))


def mend_latest(folder: Path) -> None:
    """Name the last checkpoint in `folder` that is whole where the file that names it is empty: verl opens it once that
    checkpoint is written, and a kill or a full disk may come before the number. verl could not read it."""
    latest = folder / LATEST
    if not latest.exists() or latest.read_text().strip():
        return
    whole = [_step(path) for path in folder.glob("global_step_*") if (path / LAST).exists()]
    write_text(str(max(whole)), latest) if whole else latest.unlink()


def _step(path: Path) -> int:
    return int(match[1]) if (match := STEP.search(path.name)) else sys.maxsize


def jobs(
    folder: Path,
    output: Path,
    files: Sequence[Path],
    how: Begun,
    samples: int,
    *,
    more: Sequence[str] = (),
) -> list[Job]:
    """The jobs of the checkpoints of a run in `folder`, on the questions in `files`, sampled as `how` says; `more`:
    further arguments of `repro.verl.evaluate`."""
    there, listed = checkpoints(folder), []
    for step in there:
        source, merged = there[step] / "actor", folder / "merged" / f"global_step_{step}"
        merge = ("verl.model_merger", "merge", "--backend", "fsdp", "--local_dir", str(source))
        merge = None if (merged / "config.json").exists() else (*merge, "--target_dir", str(merged))
        for file in files:
            evaluate = ("repro.verl.evaluate", str(merged), str(file))
            evaluate += ("--out", str(output / f"global_step_{step}"), "--samples", str(samples))
            evaluate += ("--max-new-tokens", str(how.length))
            evaluate += ("--temperature", str(how.temperature), "--top-p", str(how.top_p))
            evaluate += ("--template", json.dumps(dict(how.template))) if how.template else ()
            listed.append(Job(step, file.stem, merge, (*evaluate, *more)))
    return listed


def work(listed: Sequence[Job], processes: int, *, gpus: bool = True) -> None:
    """Do all jobs, `processes` at a time, each on a GPU of its own if `gpus`; merging comes first. SettingsError where
    a command fails."""
    for merge in dict.fromkeys(job.merge for job in listed if job.merge):
        _merge(merge)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    devices = visible if len(visible) >= processes and visible != [""] else [str(each) for each in range(processes)]
    free: SimpleQueue[str | None] = SimpleQueue()
    for device in devices[:processes]:
        free.put(device if gpus else None)

    def one(job: Job) -> None:
        device = free.get()
        try:
            _run(job.evaluate, device)
        finally:
            free.put(device)

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(one, listed))


def _merge(command: Sequence[str]) -> None:
    """The model's folder appears when it is whole."""
    target = Path(command[-1])
    unfinished = target.with_name("unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    _run([*command[:-1], str(unfinished)], None)
    unfinished.rename(target)


def _run(command: Sequence[str], device: str | None) -> None:
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": device} if device else {})
    if subprocess.run([sys.executable, "-m", *command], env=environment).returncode:
        raise SettingsError(f"`python -m {' '.join(command)}` failed, see above; the same command resumes")


def table_of(folder: Path, output: Path, seed: int, sets: Sequence[str]) -> pd.DataFrame:
    """The evaluations in `output` of the files named `sets`, as in the run's own table `sources`: a row for each step
    and data source, with what the run in `folder` had spent by then. Written to sources.parquet there."""
    rows = []
    for path in sorted(output.glob("global_step_*"), key=_step):
        asked = [path / name for name in sets if (path / name / "questions.parquet").exists()]
        if asked:
            spent, of_all = _spent(folder, _step(path)), pd.concat(map(_responses, asked), ignore_index=True)
            rows += [{"seed": seed, "step": _step(path), **entry, **spent} for entry in by_source(of_all)]
    table = pd.DataFrame(rows)
    write_parquet(table, output / f"{SOURCES}.parquet")
    return table


def _responses(evaluated: Path) -> pd.DataFrame:
    """source, query, successes, tokens and truncated of every response in the folder of an evaluation."""
    source = read_parquet(evaluated / "questions.parquet", AGAIN, ["id", "data_source"]).set_index("id")["data_source"]
    table = read_parquet(evaluated / "responses.parquet", AGAIN, ["id", "correct", "finished", "response_tokens"])
    return pd.DataFrame(
        {
            "source": table["id"].map(source),
            "query": f"{evaluated.name}/" + table["id"],
            "successes": table["correct"].astype(float),
            "tokens": table["response_tokens"].astype(float),
            "truncated": 1.0 - table["finished"],
        }
    )


def _spent(folder: Path, step: int) -> dict[str, float]:
    """The ledger after `step` steps, from what lies next to the checkpoint, else from the table of steps; NaN where
    neither is there."""
    for place in ("checkpoints", "best"):
        path = folder / place / f"global_step_{step}" / STATE
        if path.exists():
            remedy = f"remove {path.parent}"
            return Ledger.from_row(read_stored(path, remedy, {"ledger": LEDGER})["ledger"]).row()
    columns, path = Ledger().row().keys(), folder / "tables" / "steps.parquet"
    if path.exists():
        table = read_parquet(path, AGAIN, ["step", *columns])
        rows = table.loc[table["step"] == step - 1, list(columns)].to_dict("records")  # steps count from 0
        if rows:
            return rows[-1]
    return dict.fromkeys(columns, float("nan"))
