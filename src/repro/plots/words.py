"""What a figure shows, in words, for readers who cannot see it: what it finds, then what its panels plot."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def says(figure: "Figure", finding: str) -> "Figure":
    """`figure`, whose description begins with `finding`: a sentence with what a glance at the figure tells."""
    figure.finding = " ".join(finding.split())
    return figure


def in_words(figure: "Figure") -> str:
    """Its finding, its title, what its panels plot and whose lines they are."""
    legends = [*figure.legends, *filter(None, (ax.get_legend() for ax in figure.axes))]
    names = dict.fromkeys(text.get_text() for legend in legends for text in legend.get_texts())
    panels = dict.fromkeys(_panel(ax) for ax in figure.axes if ax.axison)
    sentences = [
        getattr(figure, "finding", ""),
        figure.get_suptitle(),
        "; ".join(filter(None, panels)),
        ", ".join(names),
    ]
    return " – ".join(" ".join(sentence.split()) for sentence in sentences if sentence)


def _panel(ax) -> str:
    """`title: y against x`, as far as the panel says so."""
    axes = " against ".join(filter(None, (ax.get_ylabel(), ax.get_xlabel())))
    return ": ".join(filter(None, (ax.get_title() or ax.get_title("left"), axes)))
