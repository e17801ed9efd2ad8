"""Train one arm with verl's main loop: the small policy on this machine's CPU, or one's own model on one's own data.

    python -m repro.verl --arm cost-aware --steps 3
    python -m repro.verl --arm d3s --seed 1 --ranks 2 --scale smoke trainer.save_freq=-1
    python -m repro.verl --arm zvf --model Qwen/Qwen2.5-1.5B-Instruct --data mine.jsonl --check
    python -m repro.verl --arm zvf --preset gpu-smoke
    python -m repro.verl --arm sgpo --model MODEL --data mine.jsonl --profiles FOLDER --measure
    python -m repro.verl --evaluate runs/own/zvf/seed-0 --samples 32

Trailing `key=value` arguments are verl's own settings. The tables go to `<output>/<arm>`. With --model, a run uses the
GPUs of the Ray cluster in RAY_ADDRESS, or of this machine, or its CPU. At the papers' scale: `repro.paper_scale`.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from repro.arms import build
from repro.errors import COUNT, SEED, brief, command
from repro.paths import BUILD
from repro.settings import Settings, SettingsError, load, stored
from repro.verl.compose import refuse
from repro.verl.config import INSTEAD
from repro.verl.run import SETTINGS, begun_alike, changed, check_arm
from repro.verl.start import run, use_cpu
from repro.verl.version import require_verl


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    chosen.words = list(sys.argv[1:] if arguments is None else arguments)
    if chosen.evaluate:
        from repro.verl.evaluated import evaluate

        evaluate(chosen, parser.parse_args([]))
        return
    if chosen.samples:
        raise SettingsError("--samples goes with --evaluate: a run evaluates repro.validation_samples of a question")
    if not chosen.arm:
        raise SettingsError("name an arm of params.yaml: --arm zvf")
    _train(chosen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m repro.verl", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arm", help="an arm of params.yaml")
    parser.add_argument("--seed", type=SEED, default=0)
    parser.add_argument("--steps", type=COUNT, help="overrides the settings")
    parser.add_argument(
        "--until", type=COUNT, help="stop after this step of a longer run, whose plan and schedule stay"
    )
    parser.add_argument("--scale", help="overrides the scale of params.yaml")
    parser.add_argument("--settings", type=Path, help="a dump of the settings, as stored by runs, replaces params.yaml")
    parser.add_argument("--model", help="one's own: a hub id or a folder of save_pretrained")
    parser.add_argument("--data", help="a parquet in verl's format, or JSON lines with `prompt` and `answer`")
    parser.add_argument(
        "--validation", action="append", default=[], help="likewise, once or more; default: part of --data"
    )
    parser.add_argument("--preset", help="a file of configs/verl/presets, such as gpu-smoke")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the GPUs there are, else the CPU")
    parser.add_argument("--nodes", type=COUNT, help="of those there are")
    parser.add_argument("--gpus", type=COUNT, help="of each node")
    parser.add_argument("--check", action="store_true", help="compose, let verl check it, print it, and stop")
    parser.add_argument("--ranks", type=COUNT, default=1, help="data-parallel processes on a CPU")
    parser.add_argument("--policy", type=Path, help="folder of the base policy; default: stage policy's, else shipped")
    parser.add_argument("--profiles", type=Path, help="folder of the profile; without --model: default: measure it")
    parser.add_argument("--measure", action="store_true", help="make the profile of --model in --profiles, and stop")
    parser.add_argument("--evaluate", type=Path, metavar="RUN", help="every checkpoint of a run of one's own")
    parser.add_argument("--samples", type=COUNT, help="of a question, for --evaluate; default: 32")
    parser.add_argument("--output", type=Path, help="default: build/verl; runs/own with --model; RUN/evaluation")
    parser.add_argument("--resume", action="store_true", help="resume from the last checkpoint in the output")
    parser.add_argument("--end-with-parent", action="store_true", help="exit when the parent process is gone")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="verl's own settings")
    return parser


def _train(chosen: argparse.Namespace) -> None:
    if chosen.end_with_parent:
        from repro.engine.workers import end_with

        end_with(os.getppid())
    for option in ("model", "preset"):
        if getattr(chosen, option) == "":
            raise SettingsError(f"--{option} is empty: name one, or leave it out to train the small policy")
    if chosen.model or chosen.preset:
        if chosen.until:
            raise SettingsError("--until goes without --model: give the number of steps as --steps")
        from repro.verl.launch import launch

        folder = launch(chosen)
        if folder is not None:
            print(f"tables of {chosen.arm}: {folder}")
        return
    for option in ("data", "validation", "device", "nodes", "gpus", "check", "measure"):
        if getattr(chosen, option):
            raise SettingsError(f"--{option} goes with --model: without one, the small policy trains on a CPU")
    if chosen.policy and not (chosen.policy / "config.json").is_file():
        raise SettingsError(f"--policy {brief(str(chosen.policy))} is no folder of save_pretrained: name one, or none")
    settings = _settings(chosen)
    if chosen.steps:
        settings = with_steps(settings, chosen.arm, chosen.steps)
    options = {name: getattr(chosen, name) for name in ("ranks", "resume", "overrides", "profiles", "until")}
    output = (chosen.output or BUILD / "verl").resolve()
    folder = train(chosen.arm, chosen.seed, settings, output, chosen.policy, **options)
    print(f"tables of {chosen.arm}: {folder}")


def _settings(chosen: argparse.Namespace) -> Settings:
    if chosen.settings:
        return stored(chosen.settings)
    settings = load(**({"scale": chosen.scale} if chosen.scale else {}))
    if settings.scale.startswith("paper-"):
        raise SettingsError(
            f"scale {settings.scale} is a paper's and trains on GPUs: `python -m repro.paper_scale run "
            f"{settings.scale} {chosen.arm}`; the small policy trains here with --scale cpu"
        )
    return settings


def with_steps(settings: Settings, arm: str, steps: int) -> Settings:
    """The settings with another number of steps."""
    own = settings.arm(arm)
    changes = own.engine.model_copy(update={"steps": steps})
    return settings.model_copy(update={"arms": {**settings.arms, arm: own.model_copy(update={"engine": changes})}})


def train(
    arm: str,
    seed: int,
    settings: Settings,
    output: Path,
    policy: Path | None = None,
    *,
    ranks: int = 1,
    resume: bool = False,
    profiles: Path | None = None,
    overrides: Sequence[str] = (),
    until: int | None = None,
) -> Path:
    """One run on this machine's CPU, in the folder `<output>/<arm>/seed-<seed>`. Returns `<output>/<arm>`, with the
    tables of all seeds trained so far with these settings. SettingsError, before anything is written, if verl does not
    support the arm or the folder holds a run that cannot be resumed."""
    require_verl()
    refuse(overrides, INSTEAD)
    if until:
        overrides = [*overrides, f"trainer.total_training_steps={min(until, settings.steps_of(arm))}"]
    check_arm(arm, build(arm, settings.arm(arm)))
    if (rollouts := settings.engine_of(arm).rollouts_per_step) % ranks:
        raise SettingsError(f"--ranks {ranks} does not divide the {rollouts} rollouts of a step")
    folder = output / arm / f"seed-{seed}"
    if (folder / SETTINGS).exists() and not resume:
        raise SettingsError(f"{folder} holds a run: resume it with --resume, or remove the folder to start over")
    begun_alike(settings, arm, folder)
    use_cpu()
    from repro.policy.shipped import policy_for
    from repro.verl.composed import begun_with, record
    from repro.verl.prepare import prepare
    from repro.verl.record import gather

    policy = policy or policy_for(settings)
    config = prepare(arm, seed, settings, policy, folder, ranks=ranks, profiles=profiles, overrides=overrides)
    begun_with(config, folder)
    record(config, folder)
    run(config)
    same = [path for path in (output / arm).glob("seed-*/tables") if not changed(settings, arm, path.parent)]
    gather(sorted(same), output / arm)
    return output / arm


if __name__ == "__main__":
    told = command(main, name="repro.verl", interrupted="interrupted; the same command with --resume continues")
    sys.exit(told())
