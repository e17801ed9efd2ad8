"""`python -m repro.paper_scale`: what launch scripts and people ask.

list                      the scales
show SCALE                every value with its source
overrides SCALE ARM       what verl is told, one Hydra override a line
check SCALE ARM           compose it, and let verl check it
run SCALE ARM             write the plan, then train on the GPUs of the Ray cluster at hand, or of this machine;
                          the same command again goes on from the last checkpoint
"""

import argparse
import os
import sys
from pathlib import Path

from repro.paper_scale import SCALES, find
from repro.paper_scale.overrides import DATA, RUNS, folder_of
from repro.paths import ROOT
from repro.settings import SettingsError
from repro.verl.version import UnsupportedVerl


def main(arguments: list[str]) -> int:
    """Runs one command; 1 with a sentence on stderr where a setting is wrong or a file is missing."""
    asked = _parser().parse_args(arguments)
    try:
        _run(asked)
    except (SettingsError, FileNotFoundError, UnsupportedVerl) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m repro.paper_scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    commands.add_parser("show").add_argument("scale")
    for name in ("overrides", "check", "run"):
        command = commands.add_parser(name)
        command.add_argument("scale")
        command.add_argument("arm")
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--nodes", type=int, help="instead of the scale's")
        command.add_argument("--gpus", type=int, help="of a node, instead of the scale's")
        command.add_argument("--data", type=Path, default=DATA, help="folder of the prepared data sets")
        command.add_argument("--runs", type=Path, default=RUNS, help="where runs have their folders")
        command.add_argument("more", nargs="*", metavar="key=value", help="further overrides of verl's settings")
        if name == "run":
            command.add_argument("--profile", type=Path, help="folder of the base model's profile, for sgpo")
    return parser


def _run(asked: argparse.Namespace) -> None:
    from repro import settings as settings_module
    from repro.paper_scale import describe
    from repro.paper_scale.compose import check, compose
    from repro.paper_scale.overrides import overrides

    if asked.command == "list":
        print("\n".join(SCALES))
        return
    scale = find(asked.scale)
    if asked.command == "show":
        print(describe.table(scale))
        return
    settings, data, runs = settings_module.load(), asked.data.resolve(), asked.runs.resolve()
    where = {"seed": asked.seed, "nodes": asked.nodes, "gpus": asked.gpus, "data": data, "runs": runs}
    told = [*overrides(scale, settings, asked.arm, **where), *asked.more]
    if asked.command == "overrides":
        print("\n".join(told))
        return
    config = compose(told)
    check(config)
    if asked.command == "run":
        _train(config, scale, settings, asked, data, runs)


def _train(config, scale, settings, asked: argparse.Namespace, data: Path, runs: Path) -> None:
    from repro.paper_scale.prepare import prepare
    from repro.verl.__main__ import run
    from repro.verl.record import gather
    from repro.verl.version import require_plugin, require_verl

    require_verl()
    require_plugin()
    os.environ.setdefault("REPRO_ROOT", str(ROOT))  # for Ray's processes, which start elsewhere
    folder = folder_of(scale, asked.arm, asked.seed, runs)
    prepare(scale, settings, asked.arm, folder, data, seed=asked.seed, profile=asked.profile)
    run(config)
    gather(sorted(folder.parent.glob("seed-*/tables")), folder.parent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
