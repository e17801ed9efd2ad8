"""What the atlas holds, and making some of it (again).

`python -m repro.atlas list|run|import|rates|again|audit|language-model`"""

import argparse
import re
import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd

from repro import paths
from repro import settings as settings_module
from repro.atlas import audit as auditing
from repro.atlas import design as designs
from repro.atlas import run as running
from repro.atlas.again import as_markdown
from repro.errors import COUNT, SEED, brief, command, number
from repro.experiments.rates.sensitivity import best_rates, held_out, mean_areas, policies, sensitivity
from repro.files import write_text
from repro.settings import SettingsError
from repro.stats import atlas


@command(name="repro.atlas", status=2)
def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m repro.atlas", description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the design's panels: runs declared and made, CPU hours left")
    run = commands.add_parser("run", help="make the runs that are missing")
    run.add_argument("--panel", nargs="+", default=[], help="only these panels")
    run.add_argument("--shard", default="1/1", help="k/n: the k-th of n parts, dealt by seed")
    run.add_argument("--minutes", type=number(float, 0, 10**6), help="begin nothing after as many minutes")
    run.add_argument("--any-cpu", action="store_true", help="also of seeds that another kind of CPU has begun")
    again = commands.add_parser("again", help="compare a panel with the one that it repeats; writes atlas/PANEL.md")
    again.add_argument("panel")
    audit = commands.add_parser(
        "audit", help="make some runs again; exit 1 if one has other bits and ends outside its interval"
    )
    audit.add_argument("count", type=COUNT)
    audit.add_argument("--seed", type=SEED, default=0, help="of the choice")
    commands.add_parser("import", help="take over the runs of the default study (make repro) that the design has too")
    commands.add_parser("rates", help="the best learning rate of each arm, by the tuning panels that are made")
    profile = commands.add_parser("language-model", help="profile the model of params.yaml's language_model, once")
    profile.add_argument("--force", action="store_true", help="also where its profile is there already")
    chosen = parser.parse_args()
    does = {"list": _list, "run": _run, "audit": _audit, "import": _import, "rates": _rates, "again": _again}
    does["language-model"] = _language_model
    return does[chosen.command](designs.load(), chosen)


def _list(design: designs.Design, chosen: argparse.Namespace) -> int:
    made = set(atlas.load("runs")["run"])
    spent = atlas.load("seconds")
    spent = spent.groupby("run")["seconds"].sum() if len(spent) else pd.Series(dtype=float)
    steps = settings_module.load(scale="cpu").engine.steps
    for name, panel in design.panels.items():
        of = list(designs.cells(design, [name]))
        left = [cell for cell in of if cell.name not in made]
        own = spent[spent.index.str.startswith(f"{name}/")].mean()
        longer = designs.settings_of(design, of[0]).engine.steps / steps
        each = spent.mean() * longer if np.isnan(own) else own
        hours = "" if np.isnan(each) or not left else f", about {len(left) * each / 3600:.1f} CPU hours left"
        print(f"{name}: {len(of) - len(left)} of {len(of)} runs{hours}. {panel.question}")
    return 0


def _run(design: designs.Design, chosen: argparse.Namespace) -> int:
    _known(design, chosen.panel)
    shard = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", chosen.shard)
    if not shard or not 1 <= int(shard[1]) <= int(shard[2]):
        raise SettingsError(f"--shard is {brief(chosen.shard)}; it should be k/n with 1 ≤ k ≤ n, as in 3/16")
    of = designs.shard_of(list(designs.cells(design, chosen.panel)), int(shard[1]), int(shard[2]))
    part = "" if int(shard[2]) == 1 else f"-{shard[1]}-of-{shard[2]}"
    running.make(design, of, part, chosen.minutes, lambda line: print(line, flush=True), chosen.any_cpu)
    return 0


def _known(design: designs.Design, panels: Sequence[str]) -> None:
    unknown = [name for name in panels if name not in design.panels]
    if unknown:
        raise SettingsError(f"the design has no panel {brief(unknown[0])}; it has {', '.join(design.panels)}")


def _import(design: designs.Design, chosen: argparse.Namespace) -> int:
    if not (paths.POLICY / "model" / "config.json").exists():
        raise SettingsError(f"{paths.POLICY / 'model'} is not there: `make repro` makes the default study")
    results, timings = paths.RESULTS / "train", paths.TIMINGS / "train"
    kept = running.take_over(design, results, timings, paths.POLICY / "model")
    print(f"{len(kept)} runs of the default study are the atlas's now")
    return 0


def _rates(design: designs.Design, chosen: argparse.Namespace) -> int:
    table = sensitivity()
    print(f"Mean area under the curve over the base policies {', '.join(policies(table))}:")
    print(mean_areas(table).join(best_rates(table)).round(4).to_string())
    if len(policies(table)) > 1:
        rate = settings_module.load().engine.learning_rate
        print(f"What a rate chosen on the other base policies gains over {rate:g}:")
        print(held_out(table, rate).pivot(index="arm", columns="policy", values="gain").round(4).to_string())
    return 0


def _again(design: designs.Design, chosen: argparse.Namespace) -> int:
    _known(design, [chosen.panel])
    text = as_markdown(design, chosen.panel, settings_module.load())
    write_text(text, paths.ATLAS / f"{chosen.panel}.md")
    print(text, end="")
    return 0


def _language_model(design: designs.Design, chosen: argparse.Namespace) -> int:
    from repro.atlas import language_model

    asked = settings_module.load().language_model
    if language_model.is_there(asked) and not chosen.force:
        print(f"{language_model.FOLDER} was profiled with these settings; --force profiles again")
        return 0
    language_model.make(asked, lambda line: print(line, flush=True))
    return 0


def _audit(design: designs.Design, chosen: argparse.Namespace) -> int:
    of = auditing.chosen(design, chosen.count, chosen.seed)
    if not of:
        raise SettingsError("the atlas holds no runs yet: `python -m repro.atlas run` makes some")
    found = auditing.audit(design, of, say=lambda line: None)
    print(found.round(4).to_string(index=False))
    differ, known = ~found["bits"], found["low"].notna()
    outside = differ & known & ~found["again"].between(found["low"], found["high"])
    print(
        f"{found['bits'].sum()} of {len(found)} runs have the atlas's bits; of the others {outside.sum()} end outside "
        f"their prediction interval, and {(differ & ~known).sum()} have too few seeds for one"
    )
    return int(outside.any())


if __name__ == "__main__":
    sys.exit(main())
