"""The tour in the terminal: curves that grow as evaluations arrive, or plain lines where output is no terminal."""

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import mean
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from repro.engine.progress import Progress, Step

MARKS = ("●", "▲", "■", "◆")
COLORS = ("bright_black", "dark_orange", "dodger_blue2", "green3")
WIDTH, HEIGHT = 60, 12  # characters of the chart
MARGIN = 0.02  # of accuracy, above and below the curves


class Curves:
    """Accuracy over training steps of every run, fed with what `train` tells.

    with Curves(titles) as curves:
        train(settings, say=curves.say, watch=curves.watch)
    """

    def __init__(self, titles: Mapping[str, str], console: Console | None = None):
        self.titles, self.console = dict(titles), console or Console()
        self.points: dict[tuple[str, int], dict[int, float]] = {}
        self.left, self.last, self.started = "", 1, time.monotonic()
        self._spinner = Spinner("dots")
        self._live = Live(console=self.console, get_renderable=self._view, refresh_per_second=4)

    def __enter__(self) -> "Curves":
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.left = ""
        if self.console.is_terminal:
            self._live.stop()

    def say(self, line: str) -> None:
        """Print a line, unless the curves show what it says."""
        if not self.console.is_terminal:
            self.console.print(line, highlight=False, markup=False)

    def watch(self, event: Progress) -> None:
        """Take one event of training."""
        if not isinstance(event, Step):
            return
        self.last = max(self.last, event.steps)
        self.left = "" if event.left is None else f"about {event.left:.0f} s left"
        if event.accuracy is not None:
            self.points.setdefault((event.arm, event.seed), {})[event.step] = event.accuracy

    def curve(self, arm: str) -> dict[int, float]:
        """{step: mean accuracy over the seeds that were evaluated there}."""
        seeds = [points for (name, _), points in self.points.items() if name == arm]
        steps = sorted({step for points in seeds for step in points})
        return {step: mean(points[step] for points in seeds if step in points) for step in steps}

    def _view(self) -> RenderableType:
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for place, (arm, title) in enumerate(self.titles.items()):
            curve = self.curve(arm)
            seeds = [points for (name, _), points in self.points.items() if name == arm]
            step = min((max(points) for points in seeds), default=0)
            now = f"accuracy {list(curve.values())[-1]:.2f}, step {step} of {self.last}" if curve else "waits"
            color = COLORS[place % len(COLORS)]
            table.add_row(Text(f"{MARKS[place % len(MARKS)]} {title}", style=color), now)
        curves = [self.curve(arm) for arm in self.titles]
        if not any(curves):
            self._spinner.update(text=f" starting the workers, {time.monotonic() - self.started:.0f} s")
            return Group(self._spinner, table)
        return Group(chart(curves, self.last), table, Text(self.left, style="dim"))


def chart(curves: Sequence[Mapping[int, float]], last: int) -> Text:
    """Held-out accuracy against steps, a mark for each point and dots between; later curves are drawn over earlier."""
    values = [value for curve in curves for value in curve.values()]
    lowest, highest = max(0.0, min(values) - MARGIN), max(values) + MARGIN
    cells: dict[tuple[int, int], tuple[str, str]] = {}

    def cell(step: float, value: float) -> tuple[int, int]:
        down = (highest - value) / (highest - lowest)
        return round((HEIGHT - 1) * down), round((WIDTH - 1) * step / last)

    for place, curve in enumerate(curves):
        color, points = COLORS[place % len(COLORS)], sorted(curve.items())
        for (step, value), (later, then) in pairwise(points):
            for part in range(1, WIDTH):
                share = part / WIDTH
                cells.setdefault(cell(step + share * (later - step), value + share * (then - value)), ("·", color))
        for step, value in points:
            cells[cell(step, value)] = (MARKS[place % len(MARKS)], color)
    text = Text("held-out accuracy\n", style="dim")
    for row in range(HEIGHT):
        label = {0: f"{highest:.2f}", HEIGHT - 1: f"{lowest:.2f}"}.get(row, "")
        text.append(f"{label:>5} │", style="dim")
        for column in range(WIDTH):
            text.append(*cells.get((row, column), (" ", "")))
        text.append("\n")
    return text.append(f"{'':5} └{'─' * WIDTH}\n{'step 0':>12}{last:>{WIDTH - 5}}", style="dim")
