"""`python -m repro.data prepare NAME… --out FOLDER [--from [NAME=]FILE] [--mirror FOLDER|URL]`, `… list`."""

import argparse
import sys
from pathlib import Path

from repro.data.prepare import PROMPTS, prepare, sentence
from repro.data.sources import SOURCES, SUITES, names_of
from repro.errors import Refused, command


@command
def main(arguments: list[str] | None = None) -> int:
    """Exit status 0, or 1 with an error message on stderr."""
    parser = argparse.ArgumentParser(prog="python -m repro.data", description="The papers' data sets in verl's format.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="list data sets and suites")
    preparing = commands.add_parser("prepare", help="write NAME.parquet and its manifest NAME.json")
    preparing.add_argument("names", nargs="+", metavar="NAME", help="a data set, or the suite of a paper")
    preparing.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    preparing.add_argument(
        "--from",
        dest="files",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="a local file instead of the hub's; the name is optional if only one data set is prepared",
    )
    preparing.add_argument("--mirror", metavar="FOLDER|URL", help="a folder with <hub id>/<file>, or another hub")
    preparing.add_argument("--prompt", choices=PROMPTS, default="boxed", help="prompt template; default: %(default)s")
    keep = "leave the evaluation sets' questions in training sets, as the papers do"
    preparing.add_argument("--keep-evaluated", action="store_true", help=keep)
    chosen = parser.parse_args(arguments)
    if chosen.command == "list":
        print(listing())
        return 0
    names = names_of(chosen.names)
    files = local_files(chosen.files, names)
    how = {"mirror": chosen.mirror, "prompt": chosen.prompt, "keep_evaluated": chosen.keep_evaluated}
    manifests = prepare(names, chosen.out, files=files, **how)
    for manifest in manifests:
        print(sentence(manifest))
    return 0


class WrongFile(Refused, ValueError):
    """One sentence: which --from does not fit."""


def local_files(given: list[str], names: list[str]) -> dict[str, Path]:
    """{name: file} of the `--from` options; ValueError if one names a data set that is not prepared."""
    files = {}
    for each in given:
        name, equals, path = each.partition("=")
        if not (equals and name in SOURCES):
            if len(names) != 1:
                raise WrongFile(f"--from {each}: {len(names)} data sets are prepared; say which one, as NAME=FILE")
            name, path = names[0], each
        if name not in names:
            raise WrongFile(f"--from {each}: {name} is not among the data sets to prepare")
        files[name] = Path(path)
    return files


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
