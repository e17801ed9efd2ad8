"""`python -m repro.verl --evaluate RUN`: every checkpoint of a run on its held-out questions."""

import argparse
import json
from pathlib import Path

import pandas as pd

from repro.engine.backends import why_not_vllm
from repro.files import read_parquet, write_parquet
from repro.settings import SettingsError
from repro.verl import questions, ready
from repro.verl.checkpoints import Begun, as_begun, jobs, table_of, work
from repro.verl.composed import FILE, recorded
from repro.verl.data import SOURCE
from repro.verl.peaks import peaks, told

SAMPLES = 32  # of a question
AGREE = ("evaluate", "samples", "validation", "device", "gpus", "ranks", "output", "check")  # go together


def evaluate(chosen: argparse.Namespace, defaults: argparse.Namespace) -> None:
    """Evaluate what is not evaluated yet, write sources.parquet, and print the peaks; with --check, print the commands
    alone. SettingsError where there is nothing to evaluate, or another option than these is given."""
    for option, value in vars(chosen).items():
        if option not in AGREE and value != getattr(defaults, option):
            word = value[0] if option == "overrides" else "--" + option.replace("_", "-")
            raise SettingsError(f"{word} goes without --evaluate, which reads the run's own {FILE}")
    folder = chosen.evaluate.resolve()
    if recorded(folder) is None:
        raise SettingsError(f"{folder} holds no run with a {FILE}: name the folder of one, such as runs/own/zvf/seed-0")
    how = as_begun(folder, Begun(0, (), 1024, 1.0, 1.0, {}))
    output = (chosen.output or folder / "evaluation").resolve()
    files = _named(chosen.validation, output, not how.reward) if chosen.validation else _held_out(folder, how.files)
    cpu = chosen.device == "cpu" or (chosen.device is None and ready.gpus_here() == 0)
    processes = chosen.ranks if cpu else chosen.gpus or ready.gpus_here()
    if processes < 1:
        raise ready.NotReady("there is no GPU here: leave out --device cuda, and the CPU samples, far slower")
    engine, dtype = "transformers" if why_not_vllm() else "vllm", "float32" if cpu else "bfloat16"
    more = ["--engine", engine, "--dtype", dtype, "--verifiers", "4"]
    more += ["--reward", json.dumps(dict(how.reward))] if how.reward else []
    listed = jobs(folder, output, files, how, chosen.samples or SAMPLES, more=more)
    if chosen.check:
        commands = dict.fromkeys([*(job.merge for job in listed if job.merge), *(job.evaluate for job in listed)])
        print("\n".join(f"python -m {' '.join(each)}" for each in commands))
        return
    work(listed, processes, gpus=not cpu)
    table = table_of(folder, output, how.seed, [file.stem for file in files])
    print(described(peaks(table), folder, output))


def described(headlines: pd.DataFrame, folder: Path, output: Path) -> str:
    """Peaks, and where the best checkpoints are; tokens and FLOPs are what training had spent by then."""
    places = [
        f"best on {row.source}: step {row.step}, {folder / 'merged' / f'global_step_{row.step}'}"
        for row in headlines.itertuples()
    ]
    return "\n".join([told(headlines), *places, f"every checkpoint: {output / 'sources.parquet'}"])


def _held_out(folder: Path, files: tuple[str, ...]) -> list[Path]:
    """The questions that the run was begun with, also where its folder has been copied elsewhere."""
    found = [path if (path := Path(file)).exists() else folder / path.name for file in files]
    if missing := [str(path) for path in found if not path.exists()] or not found:
        where = f"there is no {missing[0]}" if found else f"its {FILE} names none"
        raise SettingsError(f"{folder} has no held-out questions ({where}): name them as --validation FILE")
    _unlike_the_small_policys(found)
    return found


def _unlike_the_small_policys(files: list[Path]) -> None:
    for file in files:
        if SOURCE in set(read_parquet(file, "the training", ["data_source"])["data_source"]):
            raise SettingsError(
                f"{file} has the queries of the small policy, whose runs are evaluated while they train: table "
                "evaluations"
            )


def _named(sources: list[str], output: Path, ours: bool) -> list[Path]:
    """--validation as files in verl's format."""
    files = [output / "questions" / f"{Path(source).stem}.parquet" for source in sources]
    if len(set(files)) < len(files):
        raise SettingsError("--validation: two files have the same name, so their results would share a folder")
    for source, file in zip(sources, files, strict=True):
        write_parquet(pd.DataFrame(questions.checked(source, ours)), file)
    return files
