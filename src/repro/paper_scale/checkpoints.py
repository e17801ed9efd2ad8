"""All checkpoints of a run, evaluated in one command: merged from verl's shards, then sampled and judged.

A job is one checkpoint on one data set. Several GPUs take jobs from one list, a process each, so that no GPU waits for
another. What is finished is not done again.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pandas as pd
import yaml

from repro.files import read_parquet
from repro.paper_scale.schema import PaperScale
from repro.settings import SettingsError
from repro.settings.fields import COLDEST
from repro.verl.composed import FILE
from repro.verl.peaks import SOURCES, peaks

STEP = re.compile(r"global_step_(\d+)$")


@dataclass(frozen=True)
class Job:
    """`merge`: the command that makes the model, None where there is one; `evaluate`: that which samples and judges."""

    step: int
    data: str
    merge: tuple[str, ...] | None
    evaluate: tuple[str, ...]


def checkpoints(folder: Path) -> dict[int, Path]:
    """{step: folder} of a run's checkpoints, the best and the last; SettingsError where there are none."""
    found = [*folder.glob("best/global_step_*"), *folder.glob("checkpoints/global_step_*")]
    steps = {int(match[1]): path for path in found if (match := STEP.search(path.name)) and (path / "actor").is_dir()}
    if not steps:
        raise SettingsError(f"{folder} holds no checkpoint to evaluate: train it first, or copy it here")
    return dict(sorted(steps.items()))


def jobs(scale: PaperScale, folder: Path, data: Path, samples: int, steps: Sequence[int] | None = None) -> list[Job]:
    """The jobs of a run's checkpoints, all or those of `steps`: its validation sets, sampled as the run samples them,
    with what was overridden."""
    there, how = checkpoints(folder), _sampled(scale, folder)
    if steps and (missing := sorted(set(steps) - there.keys())):
        raise SettingsError(f"{folder} has no checkpoint of step {missing[0]}, but of {', '.join(map(str, there))}")
    listed = []
    for step in steps or there:
        source, merged = there[step] / "actor", folder / "merged" / f"global_step_{step}"
        merge = ("verl.model_merger", "merge", "--backend", "fsdp", "--local_dir", str(source))
        merge = None if (merged / "config.json").exists() else (*merge, "--target_dir", str(merged))
        for name in how["sets"]:
            evaluate = ("repro.evaluation", str(merged), str(data / f"{name}.parquet"))
            evaluate += ("--out", str(folder / "evaluation" / f"global_step_{step}"), "--samples", str(samples))
            evaluate += ("--max-new-tokens", str(how["length"]))
            evaluate += ("--temperature", str(how["temperature"]), "--top-p", str(how["top_p"]))
            evaluate += ("--template", json.dumps(how["template"])) if how["template"] else ()
            listed.append(Job(step, name, merge, (*evaluate, "--verifiers", "8")))
    return listed


def _sampled(scale: PaperScale, folder: Path) -> dict[str, Any]:
    """How the run itself evaluates: data sets, longest response, temperature, top-p, options of the chat template; the
    scale's for a run without a record of it."""
    path = folder / FILE
    config = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    data = config.get("data", {})
    rollout = config.get("actor_rollout_ref", {}).get("rollout", {}).get("val_kwargs", {})
    return {
        "sets": [Path(file).stem for file in data.get("val_files", [])] or scale.validation_data.value,
        "length": data.get("max_response_length", scale.max_response_tokens.value),
        "temperature": max(rollout.get("temperature", scale.temperature.value), COLDEST),
        "top_p": rollout.get("top_p", scale.top_p.value),
        "template": data.get("apply_chat_template_kwargs") or {},
    }


def work(listed: Sequence[Job], gpus: int) -> None:
    """Do all jobs, `gpus` at a time, each on its own; merging comes first. SettingsError where a command fails."""
    for merge in dict.fromkeys(job.merge for job in listed if job.merge):
        _run(merge, None)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    devices = visible if len(visible) >= gpus and visible != [""] else [str(device) for device in range(gpus)]
    free: SimpleQueue[str] = SimpleQueue()
    for device in devices[:gpus]:
        free.put(device)

    def one(job: Job) -> None:
        device = free.get()
        try:
            _run(job.evaluate, device)
        finally:
            free.put(device)

    with ThreadPoolExecutor(gpus) as pool:
        list(pool.map(one, listed))


def _run(command: Sequence[str], device: str | None) -> None:
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": device} if device else {})
    if subprocess.run([sys.executable, "-m", *command], env=environment).returncode:
        raise SettingsError(f"`python -m {' '.join(command)}` failed, see above; the same command resumes")


def peaks_of(folders: Sequence[Path]) -> pd.DataFrame:
    """Peak accuracy, its step and what had been spent by then, of each data set and seed (repro.verl.peaks)."""
    parts = [read_parquet(folder / "tables" / f"{SOURCES}.parquet", "launch/run.sh") for folder in folders]
    return peaks(pd.concat(parts, ignore_index=True))
