"""`python -m repro.data prepare NAME… --out FOLDER [--mirror FOLDER]`, `… list`."""

import argparse
import sys
from pathlib import Path

from repro.data.prepare import PROMPTS, prepare, sentence
from repro.data.sources import SOURCES, SUITES, names_of
from repro.errors import command


@command
def main(arguments: list[str] | None = None) -> int:
    """Exit status 0, or 1 with an error message on stderr."""
    parser = argparse.ArgumentParser(prog="python -m repro.data", description="The papers' data sets in verl's format.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="list data sets and suites")
    preparing = commands.add_parser("prepare", help="write NAME.parquet and its manifest NAME.json")
    preparing.add_argument("names", nargs="+", metavar="NAME", help="a data set, or the suite of a paper")
    preparing.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    preparing.add_argument("--mirror", metavar="FOLDER", help="a folder with <hub id>/<file>")
    preparing.add_argument("--prompt", choices=PROMPTS, default="boxed", help="prompt template; default: %(default)s")
    keep = "leave the evaluation sets' questions in training sets, as the papers do"
    preparing.add_argument("--keep-evaluated", action="store_true", help=keep)
    chosen = parser.parse_args(arguments)
    if chosen.command == "list":
        print(listing())
        return 0
    names = names_of(chosen.names)
    how = {"mirror": chosen.mirror, "prompt": chosen.prompt, "keep_evaluated": chosen.keep_evaluated}
    manifests = prepare(names, chosen.out, **how)
    for manifest in manifests:
        print(sentence(manifest))
    return 0


def listing() -> str:
    """One line per data set, then one per suite."""
    width = max(map(len, [*SOURCES, *SUITES]))
    lines = [
        f"{name:{width}}  {'train' if source.trains else 'evaluate'}  {source.hub}: {source.files}"
        for name, source in SOURCES.items()
    ]
    return "\n".join([*lines, *(f"{name:{width}}  {' '.join(suite)}" for name, suite in SUITES.items())])


if __name__ == "__main__":
    sys.exit(main())
