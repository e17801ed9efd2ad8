"""`python -m repro.paper_scale`: the command line of people and launch scripts.

list                      the scales
show [SCALE]              every value with its source
overrides [SCALE] ARM     verl's settings, one Hydra override per line
check [SCALE] ARM         compose them and let verl check them; needs no GPU
profile [SCALE]           measure the base model on every training prompt, for arms with a profile; `run` does it too
evaluate [SCALE] ARM      every checkpoint of a run, on all GPUs of this machine; --check prints the commands
peaks [SCALE] ARM         the peak of each data set, and the tokens until then
run [SCALE] ARM           write the plan, then train on the GPUs of the Ray cluster in RAY_ADDRESS, or of this machine;
                          the same command again resumes from the last checkpoint

Without SCALE, or with -, it is the one that `scale:` in params.yaml names. KEY=VALUE is a setting of verl's, for
`overrides`, `check`, `run` and `profile`; `evaluate` reads those of the run.
"""

import argparse
import re
import sys
from pathlib import Path

from repro import settings as settings_module
from repro.errors import COUNT, SEED, command
from repro.files import Unreadable
from repro.paper_scale import SCALES, PaperScale, find
from repro.paper_scale.overrides import DATA, RUNS
from repro.paper_scale.scales import values_table
from repro.paths import CONFIGS
from repro.settings import SettingsError
from repro.stats.tables import markdown

WITH_ARM = ("overrides", "check", "run", "evaluate", "peaks")
CONFIGURED = ("overrides", "check", "run", "profile")
OVERRIDE = re.compile(r"[+~]{0,2}[A-Za-z_][\w.@/]*=")  # KEY=VALUE, anywhere on the line


@command
def main(arguments: list[str]) -> int:
    """Run one command; 1 with a sentence on stderr where a setting is wrong or something is missing."""
    more = [argument for argument in arguments if OVERRIDE.match(argument)]
    asked = _parser().parse_args([argument for argument in arguments if argument not in more])
    if more and asked.command not in CONFIGURED:
        raise SettingsError(
            f"{more[0]}: `{asked.command}` composes no configuration of verl's: KEY=VALUE goes with "
            f"{', '.join(CONFIGURED)}"
        )
    if not SCALES:
        raise Unreadable(f"{CONFIGS / 'papers' / 'scales'} holds no scales: restore it, as with `git checkout configs`")
    _do(asked, more)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m repro.paper_scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    for name in ("show", "profile"):
        commands.add_parser(name).add_argument("names", nargs="*", metavar="SCALE")
    for name in WITH_ARM:
        command = commands.add_parser(name)
        command.add_argument("names", nargs="+", metavar="[SCALE] ARM")
        command.add_argument("--seed", type=SEED, default=0)
        command.add_argument("--nodes", type=COUNT, help="of those there are")
        command.add_argument("--gpus", type=COUNT, help="of each node")
        command.add_argument("--profile", type=Path, help="folder of the base model's profile, for run; else measured")
    commands.choices["evaluate"].add_argument("--samples", type=COUNT, default=32, help="of each question")
    commands.choices["evaluate"].add_argument("--steps", type=COUNT, nargs="+", help="of checkpoints; default: all")
    commands.choices["evaluate"].add_argument("--check", action="store_true", help="print the commands alone")
    for name in (*WITH_ARM, "profile"):
        commands.choices[name].add_argument("--data", type=Path, default=DATA, help="folder of the prepared data sets")
        commands.choices[name].add_argument("--runs", type=Path, default=RUNS, help="where runs have their folders")
    commands.choices["profile"].add_argument("--samples", type=COUNT, help="of each prompt; default: profile.samples")
    return parser


def _do(asked: argparse.Namespace, more: list[str]) -> None:
    if asked.command == "list":
        print("\n".join(SCALES))
        return
    names = list(asked.names)
    arm = names.pop() if asked.command in WITH_ARM else None
    if arm is not None:
        _is_arm(arm, names)
    scale, settings = _scale(names)
    if asked.command == "show":
        print(markdown(values_table(scale)), end="")
    elif asked.command in ("evaluate", "peaks"):
        _of_runs(scale, arm, asked)
    elif asked.command == "profile":
        _profile(scale, settings, asked, more)
    elif asked.command == "run":
        from repro.paper_scale.run import run

        where = {"seed": asked.seed, "nodes": asked.nodes, "gpus": asked.gpus, "data": asked.data, "runs": asked.runs}
        print(f"tables: {run(scale, settings, arm, **where, profile=asked.profile, more=more) / 'tables'}")
    else:
        _configure(scale, settings, arm, asked, more)


def _is_arm(arm: str, names: list[str]) -> None:
    """SettingsError where the last name, the arm's, is a scale, or the only one and no arm's."""
    if arm.startswith("paper-"):
        scale = find(arm).name
        if names not in ([], ["-"]):
            raise SettingsError(f"the scale comes before the arm: {scale} {names[0]}")
        raise SettingsError(f"{scale} is a scale, and which arm of params.yaml? For example: {scale} cost-aware")
    if not names or names[0] == "-":
        settings_module.load().arm(arm)


def _scale(names: list[str]) -> tuple[PaperScale, settings_module.Settings]:
    """The named scale, or params.yaml's, with the settings at that scale; SettingsError where there is none."""
    if len(names) > 1:
        raise SettingsError(f"one scale and one arm at a time, not {' '.join(names)} and more")
    if not names or names[0] == "-":
        settings = settings_module.load()
        if settings.scale not in SCALES:
            raise SettingsError(
                f"params.yaml: scale: {settings.scale!r} is not a paper's: set it to one of them, or name one here "
                "(`python -m repro.paper_scale list`)"
            )
        return SCALES[settings.scale], settings
    return find(names[0]), settings_module.load(scale=names[0])


def _of_runs(scale: PaperScale, arm: str, asked: argparse.Namespace) -> None:
    from repro.paper_scale.checkpoints import jobs, peaks_of, table_of
    from repro.paper_scale.overrides import folder_of
    from repro.verl import ready
    from repro.verl.checkpoints import work
    from repro.verl.peaks import peaks, told

    runs, data = asked.runs.resolve(), asked.data.resolve()
    folder = folder_of(scale, arm, asked.seed, runs)
    if asked.command == "peaks":
        seeds = sorted(each.parents[1] for each in folder.parent.glob("seed-*/tables/sources.parquet"))
        print(told(peaks_of(seeds or [folder])), end="")
        return
    listed = jobs(scale, folder, data, asked.samples, asked.steps)
    if asked.check:
        commands = dict.fromkeys([*(job.merge for job in listed if job.merge), *(job.evaluate for job in listed)])
        print("\n".join(f"python -m {' '.join(command)}" for command in commands))
        return
    ready.require_data(list(dict.fromkeys(job.data for job in listed)), data)
    work(listed, asked.gpus or max(1, ready.gpus_here()))
    print(told(peaks(table_of(folder, listed, asked.seed))), end="")


def _configure(
    scale: PaperScale, settings: settings_module.Settings, arm: str, asked: argparse.Namespace, more: list[str]
) -> None:
    from repro.arms import build
    from repro.paper_scale.overrides import overrides
    from repro.paper_scale.run import at_hand
    from repro.verl.best import check_rhythm
    from repro.verl.compose import check, compose
    from repro.verl.run import check_arm, check_config

    scale, at_scale = at_hand(scale, settings, arm, more)
    method = build(arm, at_scale.arm(arm))
    check_arm(arm, method)
    where = {"data": asked.data.resolve(), "runs": asked.runs.resolve()}
    values = overrides(scale, settings, arm, seed=asked.seed, nodes=asked.nodes, gpus=asked.gpus, **where)
    if asked.command == "overrides":
        print("\n".join([*values, *more]))
        return
    config = compose([*values, *more])
    check(config)
    check_config(config, method)
    check_rhythm(config)
    print(f"verl accepts {scale.name} with arm {arm}")


def _profile(scale: PaperScale, settings: settings_module.Settings, asked: argparse.Namespace, more: list[str]) -> None:
    from repro.evaluation.model import tokenizer_of
    from repro.paper_scale.overrides import overrides
    from repro.paper_scale.prepare import training_rows
    from repro.paper_scale.run import at_hand, measure
    from repro.verl import ready
    from repro.verl.compose import compose, template_of

    data, runs = asked.data.resolve(), asked.runs.resolve()
    ready.require_machine(scale.name, settings.baseline, more)
    ready.require_data(scale.data_sets, data)
    paths = [entry.partition("=")[2] for entry in more if entry.startswith("actor_rollout_ref.model.path=")]
    model = ready.local_model(paths[-1] if paths else scale.model.value)
    config = compose([*overrides(scale, settings, settings.baseline), *more]) if more else None
    scale, _ = at_hand(scale, settings, settings.baseline, more)
    template = template_of(config) if config else {}
    rows = training_rows(scale, data, tokenizer_of(model), template)
    print(measure(scale, model, rows, asked.samples or settings.profile.samples, runs, template))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
