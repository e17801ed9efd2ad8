"""The store of runs from the command line.

list                 the design's panels: runs declared, and in git
train [ARM ...]      the runs of arms of params.yaml at today's settings, those that are missing; --more: of `more_arms`
make                 the missing runs of the design's panels; stop it at any time; --shard 3/16 for a part of them
keep                 put a panel's runs that were made here, or copied here, into its tables for git
audit COUNT          make some runs in git again and compare
again PANEL          compare a panel with the one that it repeats; writes runs/PANEL.md
golden [ARM ...]     make golden steps of every arm of the design, or of arms of params.yaml, and keep them for git
rates                the best learning rate of each arm, by the tuning panels
"""

import argparse
import re
import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd

from repro import paths
from repro import settings as settings_module
from repro.errors import COUNT, SEED, brief, command, number
from repro.files import write_text
from repro.policy.shipped import policy_for
from repro.runs import audit as auditing
from repro.runs import design as designs
from repro.runs import golden, store
from repro.runs import panels as of_panels
from repro.runs.again import as_markdown
from repro.runs.key import every_seed
from repro.runs.make import made_ready
from repro.settings import SettingsError
from repro.stats import panels, rates
from repro.verl.papers import SCALES

SHARD = "k/n: the k-th of n parts, dealt by seed"


def say(line: str) -> None:
    print(line, flush=True)


@command(name="repro.runs", status=2)
def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m repro.runs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    train = commands.add_parser("train")
    train.add_argument("arms", nargs="*", metavar="ARM", help="default: every arm of `arms`")
    train.add_argument("--more", action="store_true", help="those of `more_arms` too")
    for name in ("make", "keep"):
        of_panel = commands.add_parser(name)
        of_panel.add_argument("--panel", nargs="+", default=[], help="only these panels")
        of_panel.add_argument("--shard", default="1/1", help=SHARD)
    make = commands.choices["make"]
    make.add_argument("--minutes", type=number(float, 0, 10**6), help="begin nothing after as many minutes")
    make.add_argument(
        "--again", action="store_true", help="also those that git has: every run of the design, made here"
    )
    make.add_argument("--any-cpu", action="store_true", help="also of seeds that another kind of CPU has begun")
    commands.add_parser("again").add_argument("panel")
    audit = commands.add_parser("audit", help="exit 1 if a run has other bits and ends outside its interval")
    audit.add_argument("count", type=COUNT)
    audit.add_argument("--seed", type=SEED, help="of the choice; default: another one each time, which is printed")
    steps = commands.add_parser("golden")
    steps.add_argument("arms", nargs="*", metavar="ARM", help="of params.yaml; default: every arm of the design")
    commands.add_parser("rates")
    chosen = parser.parse_args()
    return globals()[f"_{chosen.command}"](designs.load(), chosen)


def _list(design: designs.Design, chosen: argparse.Namespace) -> int:
    spent = panels.load("seconds", root=paths.PANELS)
    spent = spent.groupby("run")["seconds"].sum() if len(spent) else pd.Series(dtype=float)
    for name, panel in design.panels.items():
        of, kept = list(designs.cells(design, [name])), set(of_panels.runs_of(name)["run"])
        left = [cell for cell in of if cell.name not in kept]
        own = spent[spent.index.str.startswith(f"{name}/")].mean()
        each = spent.mean() if np.isnan(own) else own
        hours = "" if np.isnan(each) or not left else f", about {len(left) * each / 3600:.1f} CPU hours left"
        print(f"{name}: {len(of) - len(left)} of {len(of)} runs{hours}. {panel.question}")
    return 0


def _train(design: designs.Design, chosen: argparse.Namespace) -> int:
    settings = settings_module.load()
    names = chosen.arms or [*settings.arms, *(settings.more_arms if chosen.more else ())]
    if settings.scale in SCALES:  # verl has trained them
        from repro.verl.seeds import finished_tables

        for name in names:
            print(f"{name}: {finished_tables(name, settings)['evaluations']['seed'].nunique()} runs")
        return 0
    asked = every_seed(settings, names, policy_for(settings))
    missing = len(store.find(asked, say=say).absent)
    made_ready(asked, say=say)
    print(f"{len(asked) - missing} of {len(asked)} runs were there, {missing} have been made")
    return 0


def _make(design: designs.Design, chosen: argparse.Namespace) -> int:
    of, _ = _cells(design, chosen)
    of_panels.make(design, of, chosen.minutes, say, chosen.any_cpu, chosen.again)
    return 0


def _keep(design: designs.Design, chosen: argparse.Namespace) -> int:
    of, part = _cells(design, chosen)
    print(f"{len(of_panels.keep(design, of, part, say))} runs added to {paths.PANELS}; commit them")
    return 0


def _cells(design: designs.Design, chosen: argparse.Namespace) -> tuple[list[designs.Cell], str]:
    """The cells of the chosen panels and shard, and what the shard's files end with."""
    _known(design, chosen.panel)
    shard = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", chosen.shard)
    if not shard or not 1 <= int(shard[1]) <= int(shard[2]):
        raise SettingsError(f"--shard is {brief(chosen.shard)}; it should be k/n with 1 ≤ k ≤ n, as in 3/16")
    of = designs.shard_of(list(designs.cells(design, chosen.panel)), int(shard[1]), int(shard[2]))
    return of, "" if int(shard[2]) == 1 else f"-{shard[1]}-of-{shard[2]}"


def _known(design: designs.Design, names: Sequence[str]) -> None:
    if unknown := [name for name in names if name not in design.panels]:
        raise SettingsError(f"the design has no panel {brief(unknown[0])}; it has {', '.join(design.panels)}")


def _audit(design: designs.Design, chosen: argparse.Namespace) -> int:
    seed = np.random.SeedSequence().entropy % 10**6 if chosen.seed is None else chosen.seed
    of = auditing.chosen(design, chosen.count, seed)
    if not of:
        raise SettingsError("runs/panels holds no runs yet: `python -m repro.runs make` makes some, `keep` keeps them")
    found = auditing.audit(design, of, say=lambda line: None)
    print(found.round(4).to_string(index=False))
    differ, known = ~found["bits"], found["low"].notna()
    outside = differ & known & ~found["again"].between(found["low"], found["high"])
    print(
        f"{found['bits'].sum()} of {len(found)} runs (--seed {seed}) have the bits of those in git; of the others "
        f"{outside.sum()} end outside their prediction interval, {(differ & ~known).sum()} have too few seeds for one"
    )
    return int(outside.any())


def _again(design: designs.Design, chosen: argparse.Namespace) -> int:
    _known(design, [chosen.panel])
    text = as_markdown(design, chosen.panel, settings_module.load())
    write_text(text, paths.RUNS / f"{chosen.panel}.md")
    print(text, end="")
    return 0


def _golden(design: designs.Design, chosen: argparse.Namespace) -> int:
    if chosen.arms:
        settings = settings_module.load()
        asked = every_seed(settings, chosen.arms, policy_for(settings))
    else:
        of = [cell for cell in designs.cells(design) if not designs.of_language_model(design, cell.panel)]
        asked = list(of_panels.asked_of(design, of, say).values())
    names = golden.computes(asked, say)
    rows = golden.read()
    now = [row for row in rows if row.computes in names and row not in golden.read([paths.GOLDEN])]
    golden.write(now, paths.GOLDEN)
    print(f"{len(now)} rows added to {paths.GOLDEN}, of {len(set(names))} arms")
    return 0


def _rates(design: designs.Design, chosen: argparse.Namespace) -> int:
    prices = {f"where generation is {price:.0%} of the bill": table for price, table in rates.by_price().items()}
    for where, table in {"on slips": rates.sensitivity(), **prices}.items():
        print(f"\nMean area under the curve {where}, over the base policies {', '.join(rates.policies(table))}:")
        best = rates.best_rates(table)["best"].map("{:g}".format)
        print(rates.mean_areas(table).round(4).join(best).to_string())
    return 0


if __name__ == "__main__":
    sys.exit(main())
