"""`python -m repro.report index [--open]`: write the index of all reports, print its path, and open it in a browser."""

import argparse
import os
import sys
import webbrowser
from pathlib import Path

from repro.paths import REPORTS
from repro.report.index import write_index


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status: 1 with one sentence on stderr if there is nothing to list."""
    parser = argparse.ArgumentParser(prog="python -m repro.report", description="The reports of all experiments.")
    commands = parser.add_subparsers(dest="command", required=True)
    index = commands.add_parser("index", help="write reports/index.html and print its path")
    index.add_argument("--open", action="store_true", help="open it in the browser, where there is a screen")
    index.add_argument("--reports", type=Path, default=REPORTS, metavar="FOLDER", help="default: %(default)s")
    chosen = parser.parse_args(arguments)
    try:
        path = write_index(chosen.reports, _of_this_study() if chosen.reports == REPORTS else None).resolve()
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    print(path)
    if chosen.open and has_screen():
        webbrowser.open(path.as_uri())
    return 0


def _of_this_study() -> set[str]:
    """File names of the reports that the present params.yaml has stages for."""
    from repro.pipeline.stages import all_stages
    from repro.settings import load

    return {stage.report.name for stage in all_stages(load()) if stage.report}


def has_screen() -> bool:
    """Whether a browser has a window to open in; without one, `webbrowser` would start a text browser and wait."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


if __name__ == "__main__":
    sys.exit(main())
