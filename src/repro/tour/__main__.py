"""`python -m repro.tour [FILE]`: train the sampler of FILE beside GRPO and ZVF, two seeds each, and show a page of it.

The base policy is the one shipped with the project, the scale is `tutorial`: nothing is downloaded, and no stage of the
pipeline needs to have run.
"""

import argparse
import inspect
import os
import sys
import time
import webbrowser
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from repro import settings as settings_module
from repro.errors import command
from repro.paths import BUILD, ROOT
from repro.settings import SettingsError
from repro.tour.sampler import sampler_in
from repro.tour.terminal import Curves

FILE = ROOT / "examples" / "own_sampler.py"
PAGE = BUILD / "tour" / "index.html"
SCALE = "tutorial"
BUDGETS = 8  # evaluations on the way, twice those of scale `tutorial`: curves to look at


@command(name="tour", interrupted="stopped; nothing is kept")
def main(arguments: list[str] | None = None) -> int:
    """Exit status 0, 1 with one sentence on stderr, or 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m repro.tour", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=FILE, help="it defines a sampler; default: %(default)s")
    return tour(parser.parse_args(arguments).file.resolve(), Console(highlight=False))


def tour(file: Path, console: Console) -> int:
    """Train, write the page, open it where there is a display."""
    started = time.monotonic()
    sampler = sampler_in(file)
    own = sampler.__name__.replace("_", "-")
    settings = tour_settings(own, sampler)
    runs = len(settings.arms) * len(settings.seeds)
    console.print(
        f"[bold]{', '.join(arm.title for arm in settings.arms.values())}[/bold]: {runs} runs of a small policy"
    )
    console.print(f"that adds in writing, {settings.engine.workers} at a time. Your sampler: {escape(str(file))}\n")
    from repro.policy.model import SHIPPED
    from repro.training import train

    with Curves({name: arm.title for name, arm in settings.arms.items()}, console) as curves:
        tables = train(settings, policy=SHIPPED, say=curves.say, watch=curves.watch)
    from repro.stats.runs import last_of
    from repro.tour.page import answer, write_page

    path = write_page(PAGE, tables, settings, own, inspect.getsource(sampler))
    console.print(f"\n{answer(last_of(tables['evaluations']), settings, own)}\n")
    console.print(f"{time.monotonic() - started:.0f} s. The page: {path.as_uri()}", soft_wrap=True)
    if sys.platform in ("win32", "darwin") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(path.as_uri())  # without a display it would start a text browser and wait
    return 0


def tour_settings(own: str, sampler) -> settings_module.Settings:
    """The scale of the tour with GRPO, ZVF and the sampler as arm `own`."""
    settings = settings_module.load(scale=SCALE)
    if own in ("grpo", "zvf"):
        raise SettingsError(f"the sampler is called {own}, as an arm of the tour is: give it another name")
    arms = {"grpo": "grpo", "zvf": "zvf", own: {"title": own.capitalize(), "samplers": [sampler]}}
    evaluation = settings.evaluation.model_copy(update={"budgets": BUDGETS})
    settings = settings.model_copy(update={"evaluation": evaluation}).with_arms(arms)
    together = {name: arm.model_copy(update={"group": "Tour"}) for name, arm in settings.arms.items()}
    return settings.model_copy(update={"arms": together})  # one row of the figure


if __name__ == "__main__":
    sys.exit(main())
