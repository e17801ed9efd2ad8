"""Training as a cell shows it: learning curves, and below them the last line of what a terminal would print."""

import math
import os
import sys
import time
from base64 import b64encode
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from repro.plots.style import COLORS, new_figure, to_png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SESSIONS = (
    "JPY_SESSION_NAME",
    "VSCODE_PID",
    "COLAB_RELEASE_TAG",
)  # of JupyterLab, VS Code, Colab; not of papermill
EVERY = 2.0  # seconds between two drawings


def in_a_cell() -> bool:
    """Whether somebody looks on: in a kernel that an editor has started."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel") and any(name in os.environ for name in SESSIONS)


class LiveCurves:
    """A `watch` and a `say` of `repro.train`. titles: {arm: its name}."""

    def __init__(self, titles: Mapping[str, str]):
        self.titles, self.points, self.shown, self.last = titles, {}, None, -math.inf

    def __call__(self, event: Any) -> None:
        """A step of a run, or that none has ended (repro.engine.progress)."""
        if getattr(event, "accuracy", None) is not None:
            self.points.setdefault((event.arm, event.seed), []).append((event.step, event.accuracy))
        if time.monotonic() - self.last >= EVERY or getattr(event, "left", None) == 0:
            self.say(str(event))

    def say(self, line: str) -> None:
        from IPython.display import HTML, display

        self.last, curves = time.monotonic(), ""
        if self.points:
            curves = f'<img alt="Accuracy" src="data:image/png;base64,{b64encode(to_png(self.figure())).decode()}">'
        said = HTML(f"{curves}<p>{escape(line)}</p>")
        self.shown = self.shown or display(said, display_id=True)
        self.shown.update(said)

    def figure(self) -> "Figure":
        """A line for each seed, in its arm's colour."""
        figure, [[ax]] = new_figure(3.0)
        arms = list(dict.fromkeys(arm for arm, _ in self.points))
        for (arm, _), points in self.points.items():
            look = {"color": COLORS[arms.index(arm) % len(COLORS)], "linewidth": 1.2, "markersize": 3, "marker": "o"}
            ax.plot(*zip(*points, strict=True), **look, label=self.titles[arm])
        ax.set(xlabel="training step", ylabel="held-out accuracy")
        handles, names = ax.get_legend_handles_labels()
        ax.legend(dict(zip(names, handles, strict=True)).values(), dict.fromkeys(names), loc="upper left")
        return figure
