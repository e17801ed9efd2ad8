"""One look for every figure: readable on a phone, in grey and by the colour-blind, and the same bytes at every run."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from repro.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Seaborn's "colorblind" without its yellow and its pale pink, which vanish on white.
COLORS = ("#0173b2", "#d55e00", "#029e73", "#de8f05", "#56b4e9", "#cc78bc", "#949494")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (9, 2.5)))

# A figure of 6.4 inches shrinks to about 0.57 on a phone of 390 px: 13 pt there is 10 px, the least that reads well.
RC = {
    "figure.figsize": (6.4, 4.0),
    "figure.constrained_layout.use": True,
    "font.size": 13,
    "axes.titlesize": 13,
    "axes.labelsize": 13,
    "xtick.labelsize": 12,
    "ytick.labelsize": 12,
    "legend.fontsize": 11.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a8f98",
    "grid.color": "#e6e8eb",
    "lines.linewidth": 2,
    "lines.markersize": 6,
    "savefig.dpi": 160,
    # Element ids from the content and a fixed salt, not from a random one: the same figure is the same file.
    "svg.hashsalt": "repro",
    # Text as outlines: about 20 kB more a figure than text, but no phone has our font, and a substitute overlaps.
    "svg.fonttype": "path",
}
# Neither the date nor matplotlib's version belongs in a file that is compared from run to run.
METADATA = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}


def use_style() -> None:
    """Set the project's style for every figure that follows; inside a notebook, draw figures inline as such SVGs."""
    import seaborn

    seaborn.set_theme(context="notebook", style="whitegrid", palette=list(COLORS), rc=RC)
    if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()) is not None:
        if not hasattr(shell, "kernel"):
            return
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("svg", metadata=METADATA["svg"])


def arm_styles(arms: Sequence[str]) -> dict[str, dict]:
    """For each arm the keywords of `Axes.plot` that mark it: `color`, `marker`, `linestyle`.

    They depend on an arm's place in `arms` alone, so that appending one leaves the others as they were. The three
    cycles have lengths without a common factor: 280 arms before one repeats, 40 before two look alike in grey.
    """
    return {
        arm: {
            "color": COLORS[place % len(COLORS)],
            "marker": MARKERS[place % len(MARKERS)],
            "linestyle": DASHES[place % len(DASHES)],
        }
        for place, arm in enumerate(arms)
    }


def save(figure: "Figure", path: Path) -> tuple[Path, Path]:
    """Write `figure` beside `path` as .svg and as .png, each whole or not at all; returns the two paths.

    The same figure gives the same bytes. A suffix of `path` that is neither is kept as part of the name.
    """
    path = Path(path)
    stem = path.with_suffix("") if path.suffix in (".svg", ".png") else path
    written = []
    for kind, metadata in METADATA.items():
        target = stem.with_name(f"{stem.name}.{kind}")
        write_whole(target, partial(figure.savefig, format=kind, metadata=metadata))
        written.append(target)
    return written[0], written[1]
