"""Training at a paper scale: one seed of an arm, or all seeds for the pipeline."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from repro import paths
from repro.arms import build
from repro.evaluation.model import tokenizer_of
from repro.files import read_parquet
from repro.paper_scale.at_scale import settings_at
from repro.paper_scale.overridden import overridden, settings_of
from repro.paper_scale.overrides import DATA, RUNS, folder_of, overrides
from repro.paper_scale.prepare import prepare, rows_of, tell_difference
from repro.paper_scale.scales import find
from repro.paper_scale.schema import PaperScale
from repro.settings import Settings
from repro.verl import best, ready
from repro.verl.compose import check, compose, refuse, template_of
from repro.verl.composed import begun_with, record
from repro.verl.identity import identified, profiled
from repro.verl.profile import Sampling, profile_of
from repro.verl.questions import short_enough
from repro.verl.run import PROFILE, begun_alike, check_arm, check_config
from repro.verl.version import UnsupportedVerl

INSTEAD = {  # what verl reads is the arm's plan, and the scale's sets
    "data.train_files": "the arm's plan is written there: --data names the folder of the prepared data sets",
    "data.val_files": "the scale's validation sets are read there: --data names the folder of the prepared data sets",
}


def run(
    scale: PaperScale,
    settings: Settings,
    arm: str,
    *,
    seed: int = 0,
    nodes: int | None = None,
    gpus: int | None = None,
    data: Path = DATA,
    runs: Path = RUNS,
    profile: Path | None = None,
    more: Sequence[str] = (),
) -> Path:
    """Train one seed of `arm` on the GPUs of the Ray cluster in RAY_ADDRESS, or of this machine; returns its folder.

    The same call resumes from the last checkpoint, and does nothing where the run is finished. `nodes` and `gpus` (of a
    node): fewer than there are; `profile`: a folder of one, else measured once for the scale; `more`: further Hydra
    overrides. NotReady, UnsupportedVerl or SettingsError before anything is loaded.
    """
    data, runs = Path(data).resolve(), Path(runs).resolve()
    folder = folder_of(scale, arm, seed, runs)
    check_arm(arm, build(arm, settings_at(scale, settings).arm(arm)))
    scale, at_scale = at_hand(scale, settings, arm, more)
    method = build(arm, at_scale.arm(arm))
    begun_alike(at_scale, arm, folder)
    if finished(folder, at_scale.steps_of(arm)):
        print(f"{folder} is finished: remove it to train again")
        return folder
    ready.require_machine(scale.name, arm, more)
    ready.require_data(scale.data_sets, data)
    available = ready.gpus_at_hand()
    nodes, gpus = nodes or available[0], gpus or available[1]
    where = {"seed": seed, "nodes": nodes, "gpus": gpus, "data": data, "runs": runs}
    config = compose([*overrides(scale, settings, arm, **where), *more])
    check(config)
    check_config(config, method)
    best.check_rhythm(config)
    model = ready.local_model(config.actor_rollout_ref.model.path)
    sets = [rows_of(name, data) for name in scale.data_sets]
    identified(config, sets, model)
    use = at_scale.arm(arm).profile
    if profile is None and (folder / "profile" / f"{PROFILE}.json").exists():
        profile = folder / "profile"  # that of the run being resumed
    profiled(config, profile, use)
    begun_with(config, folder)
    tell_difference(scale, len(sets[0]))
    template = template_of(config)
    rows = short_enough(sets[0], tokenizer_of(model), scale.max_prompt_tokens.value, template)
    if use and profile is None:
        profile = measure(scale, model, rows, use.samples, runs, template)
        profiled(config, profile, use)
    prepare(scale, settings, arm, folder, rows, seed=seed, profile=profile, at_scale=at_scale)
    record(config, folder)
    _train(config)
    return folder


def at_hand(scale: PaperScale, settings: Settings, arm: str, more: Sequence[str]) -> tuple[PaperScale, Settings]:
    """The scale and the settings with what `more` overrides; reading overrides takes verl."""
    refuse(more, INSTEAD)
    if not more:
        return scale, settings_at(scale, settings)
    scale = overridden(scale, settings, arm, more)
    return scale, settings_of(scale, settings, arm, compose([*overrides(scale, settings, arm), *more]), more)


def measure(
    scale: PaperScale,
    model: Path,
    rows: Sequence[dict],
    samples: int,
    runs: Path,
    template: Mapping[str, Any] | None = None,
) -> Path:
    """The folder of the scale's profile, with at least `samples` samples of each prompt, by vLLM on this machine."""
    gpus = ready.gpus_here()
    if gpus == 0:
        raise ready.NotReady(
            f"{scale.name}: the base model is profiled where the run is started, and there is no GPU here: run "
            f"`python -m repro.paper_scale profile {scale.name} --samples {samples}` once on a node with GPUs"
        )
    return profile_of(sampling(scale, template), model, rows, samples, profile_folder(scale, runs), gpus=gpus)


def sampling(scale: PaperScale, template: Mapping[str, Any] | None = None) -> Sampling:
    """How a scale's training samples; `template`: options of the chat template."""
    lengths = scale.max_prompt_tokens.value, scale.max_response_tokens.value
    return Sampling(scale.temperature.value, scale.top_p.value, *lengths, template or {})


def profile_folder(scale: PaperScale, runs: Path = RUNS) -> Path:
    """Where the arms and seeds of a scale find its profile; no arm's name begins so."""
    return runs / scale.name / "_profile"


def finished(folder: Path, steps: int) -> bool:
    """Whether a run has been evaluated after its last step, or has diverged."""
    path = folder / "tables" / "evaluations.parquet"
    if not path.exists():
        return False
    evaluations = read_parquet(path, "launch/run.sh", ["step", "diverged"])
    return bool(evaluations["diverged"].any() or evaluations["step"].max() >= steps)


def train_arm(arm: str, settings: Settings, runs: Path | None = None) -> dict[str, pd.DataFrame]:
    """The tables of every seed of `arm` at the paper scale that `settings.scale` names. Runs that are missing in `runs`
    (default: the project's runs/) are trained, one after the other, each in a process of its own; the same call resumes
    one that was cut off. Where all are there, by launch/ for instance, this needs no GPU.
    """
    scale, runs, data = find(settings.scale), runs or paths.ROOT / RUNS, paths.ROOT / DATA
    at_scale, seeds = settings_at(scale, settings), settings.seeds_of(arm)
    folders = {seed: folder_of(scale, arm, seed, runs) for seed in seeds}
    missing = [seed for seed, folder in folders.items() if not finished(folder, at_scale.steps_of(arm))]
    if missing:
        _can_train(scale, arm, missing, runs, data)
    for folder in folders.values():
        begun_alike(at_scale, arm, folder)
    for seed in missing:
        command = [sys.executable, "-m", "repro.paper_scale", "run", scale.name, arm, "--seed", str(seed)]
        command += ["--data", str(data), "--runs", str(runs)]
        done = subprocess.run(command, cwd=paths.ROOT, env={**os.environ, "REPRO_ROOT": str(paths.ROOT)})
        if done.returncode:
            raise ready.NotReady(
                f"{arm}, seed {seed}, ended with status {done.returncode}, see above; `python -m repro.runs train "
                f"{arm}` resumes from its last checkpoint"
            )
    return tables_in(list(folders.values()))


def _can_train(scale: PaperScale, arm: str, seeds: Sequence[int], runs: Path, data: Path) -> None:
    """NotReady names the unfinished runs: this may be a machine that should only collect them."""
    try:
        ready.require_machine(scale.name, arm)
        ready.require_data(scale.data_sets, data)
    except (ready.NotReady, UnsupportedVerl) as error:
        which = f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))} of {arm}"
        verb = "is" if len(seeds) == 1 else "are"
        raise ready.NotReady(
            f"{which} {verb} not finished in {runs / scale.name / arm} (copy what another machine trained there to "
            f"collect it), and {error}"
        ) from error


def tables_in(folders: Sequence[Path]) -> dict[str, pd.DataFrame]:
    """{name: table} of an arm's runs, all seeds in one."""
    names = dict.fromkeys(path.stem for folder in folders for path in sorted((folder / "tables").glob("*.parquet")))
    return {
        name: pd.concat(
            [read_parquet(folder / "tables" / f"{name}.parquet", "launch/run.sh") for folder in folders],
            ignore_index=True,
        )
        for name in names
    }


def _train(config: Any) -> None:
    from repro.verl.start import run as run_verl

    run_verl(ready.on_cluster(config))
