"""Train one arm with verl: the small policy, one's own model on one's own data, or a paper's.

    python -m repro.verl --arm cost-aware --steps 3                              the small policy, on this machine's CPU
    python -m repro.verl --arm d3s --seed 1 --ranks 2 --scale smoke trainer.save_freq=-1
    python -m repro.verl --arm zvf --model Qwen/Qwen2.5-1.5B-Instruct --data mine.jsonl --check
    python -m repro.verl --arm zvf --preset gpu-smoke
    python -m repro.verl --arm cost-aware --preset paper-qwen3-8b                a paper's model, data and values
    python -m repro.verl --peaks runs/own/zvf                                    the peak on each data set
    python -m repro.verl --peaks runs/paper-qwen3-8b/cost-aware --paper          and the paper's own
    python -m repro.verl --presets paper-qwen3-8b                                its values, and their sources

Values come from verl's defaults, configs/verl/repro_trainer.yaml, the preset, the arm, and the command line, each over
the one before: KEY=VALUE is a setting of verl's. Without --preset it is the one that `scale:` in params.yaml names, if
that is a paper's, `own` with --model, else `study`, the small policy. With GPUs, a run uses those of the Ray cluster in
RAY_ADDRESS, or of this machine. The same command resumes; with `study`, --resume.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from repro.errors import COUNT, SEED, brief, command
from repro.files import read_parquet
from repro.settings import Settings, SettingsError, load, stored
from repro.stats.tables import markdown
from repro.verl import presets
from repro.verl.presets import OWN, STUDY, Preset
from repro.verl.version import require_verl

# Options of the one that the other has no use for.
NOT_OF_STUDY = ("model", "data", "validation", "device", "nodes", "gpus", "measure")
OF_STUDY = ("until", "policy", "settings", "resume")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    chosen = _parser().parse_args(arguments)
    if chosen.presets is not None:
        print(markdown(presets.described(chosen.presets) if chosen.presets else presets.listed()), end="")
    elif chosen.peaks:
        print(peaks_of(chosen.peaks, chosen.paper, chosen.arm), end="")
    elif not chosen.arm:
        raise SettingsError("name an arm of params.yaml: --arm zvf")
    else:
        _train(chosen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m repro.verl", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arm", help="an arm of params.yaml")
    parser.add_argument("--seed", type=SEED, default=0)
    parser.add_argument("--preset", help="a file of configs/verl/presets, or a paper's scale")
    parser.add_argument("--presets", nargs="?", const="", metavar="PRESET", help="list them, or the values of one")
    parser.add_argument("--model", help="a hub id or a folder of save_pretrained; default: the preset's")
    parser.add_argument(
        "--data",
        help="a parquet in verl's format, or JSON lines with `prompt` and `answer`; for a paper's preset the folder of "
        "the prepared data sets, by default data/verl",
    )
    parser.add_argument(
        "--validation", action="append", default=[], help="likewise, once or more; default: part of --data"
    )
    parser.add_argument("--steps", type=COUNT, help="overrides the preset or the settings")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the GPUs there are, else the CPU")
    parser.add_argument("--nodes", type=COUNT, help="of those there are")
    parser.add_argument("--gpus", type=COUNT, help="of each node")
    parser.add_argument("--ranks", type=COUNT, default=1, help="data-parallel processes on a CPU")
    parser.add_argument("--check", action="store_true", help="compose, let verl check it, print it, and stop")
    parser.add_argument("--profiles", type=Path, help="folder of the profile; default: measured, next to the runs")
    parser.add_argument("--measure", action="store_true", help="measure the profile of the model alone")
    parser.add_argument("--peaks", type=Path, metavar="RUN", help="of a run, or of all seeds in a folder")
    parser.add_argument(
        "--paper",
        nargs="?",
        const="",
        metavar="SCALE",
        help="with --peaks: the paper's row for its --arm; default: the run's own",
    )
    parser.add_argument("--output", type=Path, help="default: build/verl; runs/own; runs/PRESET")
    of_study = parser.add_argument_group("of the small policy alone")
    of_study.add_argument("--scale", help="overrides the scale of params.yaml")
    of_study.add_argument("--settings", type=Path, help="a dump of the settings, as stored by runs, for params.yaml")
    of_study.add_argument(
        "--policy", type=Path, help="folder of the base policy; default: stage policy's, else shipped"
    )
    of_study.add_argument(
        "--until", type=COUNT, help="stop after this step of a longer run, whose plan and schedule stay"
    )
    of_study.add_argument("--resume", action="store_true", help="resume from the last checkpoint in the output")
    parser.add_argument("--end-with-parent", action="store_true", help="exit when the parent process is gone")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="verl's own settings")
    return parser


def _train(chosen: argparse.Namespace) -> None:
    if chosen.end_with_parent:
        from repro.engine.workers import end_with

        end_with(os.getppid())
    for option in ("model", "preset"):
        if getattr(chosen, option) == "":
            raise SettingsError(f"--{option} is empty: name one, or leave it out")
    if bad := [entry for entry in chosen.overrides if "=" not in entry]:
        raise SettingsError(f"{bad[0]}: write a verl setting as KEY=VALUE")
    preset, settings = _preset(chosen)
    settings.arm(chosen.arm)  # misspelt arms before verl or GPUs are looked for
    require_verl()
    small = preset.name == STUDY
    for option in NOT_OF_STUDY if small else OF_STUDY:
        if getattr(chosen, option):
            raise SettingsError(
                f"--{option} goes with {'--model or another --preset' if small else f'--preset {STUDY}'}"
            )
    if small:
        folder = _study(chosen, settings)
    else:
        from repro.verl.launch import launch

        folder = launch(chosen, preset, settings)
    if folder is not None:
        print(f"tables of {chosen.arm}: {folder}")


def _preset(chosen: argparse.Namespace) -> tuple[Preset, Settings]:
    """The preset, and the settings that it is laid over."""
    if chosen.settings:
        settings = stored(chosen.settings)
    else:
        scale = {"scale": chosen.scale} if chosen.scale else {}
        settings = load(**scale)
    of_paper = settings.scale if settings.scale in presets.SCALES else None
    preset = presets.find(chosen.preset or (of_paper or (OWN if chosen.model else STUDY)))
    return preset, load(scale=preset.name) if preset.scale and preset.name != settings.scale else settings


def _study(chosen: argparse.Namespace, settings: Settings) -> Path | None:
    from repro.verl import study

    if chosen.policy and not (chosen.policy / "config.json").is_file():
        raise SettingsError(f"--policy {brief(str(chosen.policy))} is no folder of save_pretrained: name one, or none")
    if chosen.steps:
        settings = study.with_steps(settings, chosen.arm, chosen.steps)
    names = ("ranks", "resume", "overrides", "profiles", "until", "check")
    output = (chosen.output or presets.find(STUDY).runs).resolve()
    options = {name: getattr(chosen, name) for name in names}
    return study.train(chosen.arm, chosen.seed, settings, output, chosen.policy, **options)


def peaks_of(folder: Path, scale: str | None = None, arm: str | None = None) -> str:
    """The peaks of a run, or of all seeds in a folder, as Markdown (repro.verl.peaks); with a `scale`, or "" for the
    run's own, the paper's row below (repro.verl.published)."""
    import pandas as pd

    from repro.verl.composed import recorded
    from repro.verl.peaks import SOURCES, peaks, told
    from repro.verl.published import compared

    found = sorted([*folder.glob(f"tables/{SOURCES}.parquet"), *folder.glob(f"seed-*/tables/{SOURCES}.parquet")])
    if not found:
        raise SettingsError(f"{folder} holds no run that was evaluated: name the folder of one, or of an arm's seeds")
    headlines = peaks(pd.concat([read_parquet(path, "the training") for path in found], ignore_index=True))
    if scale is None:
        return told(headlines)
    own = (recorded(found[0].parent.parent) or {}).get("repro", {})
    scale, arm = scale or own.get("scale"), arm or own.get("arm")
    if not (scale and arm):
        raise SettingsError(f"{folder} does not say its scale and arm: --paper paper-qwen3-8b --arm zvf names them")
    return told(headlines) + "\n" + markdown(compared(headlines, scale, arm), formats={"paper": ".1f"})


if __name__ == "__main__":
    told = command(main, name="repro.verl", interrupted="interrupted; the same command with --resume continues")
    sys.exit(told())
