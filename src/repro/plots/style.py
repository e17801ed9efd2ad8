"""The style of every figure: readable on a phone, in grey and by the colour-blind; the same bytes at every run."""

import re
import sys
from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from repro.files import write_whole
from repro.plots.narrow import stacked
from repro.plots.words import in_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Seaborn's "colorblind" palette without its yellow and its pale pink, which vanish on white.
COLORS = ("#0173b2", "#d55e00", "#029e73", "#de8f05", "#56b4e9", "#cc78bc", "#949494")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
ANSWERS = {  # colours of a point: of its edge, and inside
    "higher": (COLORS[0], COLORS[0]),
    "lower": (COLORS[1], COLORS[1]),
    "equal": ("0.35", "0.75"),
    "inconclusive": ("0.35", "white"),
}
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (9, 2.5)))

# The baseline looks the same in every panel, and unlike every other arm.
BASELINE = {"color": "0.1", "marker": None, "linestyle": "-", "linewidth": 2.6}

# A figure of 7.2 inches shrinks to about half on a phone of 390 px; 13 pt is then 10 px, the smallest readable size.
WIDTH = 7.2
LARGE = 50  # square inches
STRIPE = "#f4f5f7"  # behind every other row
RC = {
    "figure.figsize": (6.4, 4.0),
    "figure.dpi": 100,
    "figure.constrained_layout.use": True,
    # The font that comes with matplotlib, so that a figure is the same on every machine.
    "font.family": ["DejaVu Sans"],
    "font.size": 13,
    "figure.titlesize": 14,
    "figure.titleweight": "bold",
    "figure.labelsize": 13,
    "axes.titlesize": 13,
    "axes.labelsize": 13,
    "xtick.labelsize": 12,
    "ytick.labelsize": 12,
    "legend.fontsize": 11.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a8f98",
    "axes.labelcolor": "0.15",
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e6e8eb",
    "text.color": "0.15",
    "xtick.color": "0.15",
    "ytick.color": "0.15",
    "xtick.bottom": False,
    "ytick.left": False,
    "lines.linewidth": 2,
    "lines.solid_capstyle": "round",
    "lines.markersize": 6,
    "savefig.dpi": 160,
    # Element ids from the content and a fixed salt, so that the same figure is the same file.
    "svg.hashsalt": "repro",
    # Text as outlines: about 20 kB more a figure than text, but no phone has our font, and a substitute overlaps.
    "svg.fonttype": "path",
}
# Neither the date nor matplotlib's version belongs in a file that is compared from run to run.
METADATA = {"Date": None, "Creator": None}
FIGURE = "application/vnd.repro.figure+json"  # next to the picture among a notebook's outputs, for reports
FINER = re.compile(r"\b([1-9]\d*\.\d\d)\d+")  # a number of at least 1, since a scale may be 0.115
PHONE_DPI = 150  # of the picture for phones: 1.7 pixels for one of CSS, so that a page of many stays below the limit


def use_style() -> None:
    """Set the project's style for every figure that follows; inside a notebook, show a figure as `to_svg` writes it, or
    if it is large as `to_png` does.

    The style does not come from seaborn, whose import takes longer than drawing all figures of a report.
    """
    import matplotlib

    matplotlib.rcParams.update({**RC, "axes.prop_cycle": matplotlib.cycler(color=COLORS)})
    if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()) is not None:
        from matplotlib.figure import Figure

        formatters = shell.display_formatter.formatters
        formatters["image/svg+xml"].for_type(Figure, _shown_as_svg)
        formatters["image/png"].for_type(Figure, _shown_as_png)
        shell.display_formatter.mimebundle_formatter.for_type(Figure, _shown_in_reports)


def _shown_as_svg(figure: "Figure") -> tuple[str, dict[str, str]] | None:
    """The SVG and its description in words."""
    return None if is_large(figure) else (to_svg(figure), {"alt": in_words(figure)})


def _shown_as_png(figure: "Figure") -> tuple[bytes, dict[str, int | str]] | None:
    """The PNG, its description, and how wide to show it, in CSS pixels: as wide as its SVG would be."""
    width = {"width": round(96 * figure.get_figwidth())}
    return (to_png(figure), width | {"alt": in_words(figure)}) if is_large(figure) else None


def _shown_in_reports(figure: "Figure", include=None, exclude=None) -> dict[str, dict] | None:
    """What a report shows besides, as far as there is any: a picture for phones, and the drawing that answers."""
    column = stacked(figure)
    more = {"narrow": b64encode(to_png(column, PHONE_DPI)).decode()} if column else {}
    more |= {"interactive": figure.interactive} if getattr(figure, "interactive", None) else {}
    return {FIGURE: more} if more else None


def is_large(figure: "Figure") -> bool:
    """Whether the figure is so large that its SVG would be several times the size of its PNG."""
    return figure.get_figwidth() * figure.get_figheight() > LARGE


def to_svg(figure: "Figure") -> str:
    """The figure as SVG, the same bytes at every run; of coordinates two decimals, hundredths of a point."""
    buffer = StringIO()
    _draw(figure, buffer, format="svg", metadata=METADATA)
    return FINER.sub(r"\1", buffer.getvalue())


def to_png(figure: "Figure", dpi: float = RC["figure.dpi"]) -> bytes:
    """The figure as PNG in the project's colours and tints of them, to which every pixel is rounded: a quarter of the
    usual size, so that a page of many figures stays small."""
    from PIL import Image

    drawn, written = BytesIO(), BytesIO()
    _draw(figure, drawn, format="png", dpi=dpi, pil_kwargs={"compress_level": 0})
    palette = Image.new("P", (1, 1))
    palette.putpalette(_tints())
    rounded = Image.open(drawn).convert("RGB").quantize(palette=palette, dither=Image.Dither.NONE)
    rounded.save(written, "png", compress_level=9)
    return written.getvalue()


def _draw(figure: "Figure", target: BytesIO | StringIO, **options) -> None:
    """`savefig`, with the axes put back afterwards. The layout starts from the axes' positions, so otherwise a second
    drawing would differ from the first by rounding. Matplotlib draws all of it first to lay it out; here nothing."""
    places = [(ax, ax.get_position(original=True).frozen()) for ax in figure.axes]
    layout, draw = figure.get_layout_engine(), figure.draw
    figure.draw = lambda to: layout.execute(figure) if layout and figure.get_layout_engine() is layout else draw(to)
    figure.savefig(target, **options)
    del figure.draw
    for ax, place in places:
        ax.set_position(place)
        ax.set_in_layout(True)  # which setting a position by hand turns off


def _tints() -> bytes:
    """RGB of white, of the background greys, and of each colour mixed with white in steps of a fifth."""
    from matplotlib.colors import to_rgb

    hues = [to_rgb(color) for color in (*COLORS, BASELINE["color"])]
    mixed = [[part + share * (1 - part) for part in hue] for hue in hues for share in (0, 0.2, 0.4, 0.6, 0.8)]
    plain = [to_rgb(color) for color in ("white", STRIPE, RC["grid.color"])]
    return bytes(round(255 * part) for color in (*plain, *mixed) for part in color)


def arm_styles(arms: Sequence[str]) -> dict[str, dict]:
    """For each arm the keywords of `Axes.plot` that mark it: `color`, `marker`, `linestyle`.

    They depend only on an arm's position in `arms`, so appending one leaves the others unchanged. The lengths of the
    three cycles have no common factor: styles repeat after 280 arms, and in grey after 40.
    """
    return {
        arm: {
            "color": COLORS[place % len(COLORS)],
            "marker": MARKERS[place % len(MARKERS)],
            "linestyle": DASHES[place % len(DASHES)],
        }
        for place, arm in enumerate(arms)
    }


def group_styles(arms: Sequence[str], baseline: str) -> dict[str, dict]:
    """`arm_styles` for the arms of one panel, the baseline first and always in its own style."""
    return {baseline: BASELINE, **arm_styles([arm for arm in arms if arm != baseline])}


def new_figure(height: float, rows: int = 1, columns: int = 1, width: float = WIDTH, **options) -> tuple:
    """(figure, axes in a 2-D array) in the project's style; inches. `options`: those of `Figure.subplots`.

    Made without pyplot, which would keep a reference and show it twice in a notebook.
    """
    from matplotlib.figure import Figure

    use_style()
    figure = Figure(figsize=(width, height))
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def save(figure: "Figure", path: Path) -> tuple[Path, Path]:
    """Write `figure` next to `path` as .svg and as .png, each whole or not at all; returns the two paths.

    The same figure gives the same bytes. A suffix of `path` that is neither is kept as part of the name.
    """
    path = Path(path)
    stem = path.with_suffix("") if path.suffix in (".svg", ".png") else path
    svg, png = (stem.with_name(f"{stem.name}.{kind}") for kind in ("svg", "png"))
    write_whole(svg, lambda partial: partial.write_text(to_svg(figure), encoding="utf-8"))
    write_whole(png, lambda partial: partial.write_bytes(to_png(figure, RC["savefig.dpi"])))
    return svg, png
