"""One group of responses as a picture: what each earned, what it cost, how likely it was to be drawn, how often it was.

SVG from a template, not matplotlib: a README shows it as an image, which follows the reader's dark mode only if the
file says how.
"""

from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from repro.methods.rollouts import Rollouts

TEMPLATE = Path(__file__).with_name("picture.svg.j2")
LONGEST = 15  # characters of a response that fit next to the bars
MOST = 16  # rows of a picture in a notebook


def batch_svg(group: "pd.DataFrame", title: str, source: str = "") -> str:
    """The picture of `group`: a row for each response with its `response`, `reward`, `advantage`, `cost` in tokens, how
    often it was `drawn`, and if known the probability `p` of a draw. `source`: kept in the file, for a reader of its
    text. The same rows give the same text."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    rows = [{**row, "response": _short(row["response"])} for row in group.to_dict("records")]
    largest = {name: float(group[name].abs().max()) or 1.0 for name in ("advantage", "cost", "p") if name in group}
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        rows=rows, largest=largest, title=title, source=source
    )


def shown(rollouts: "Rollouts") -> str | None:
    """HTML: the picture of the first rollouts, by group; None where jinja2 or pandas is missing."""
    if not (find_spec("jinja2") and find_spec("pandas")):
        return None
    import pandas as pd

    row_U, first_U, drawn_U = np.unique(rollouts.row_N, return_index=True, return_counts=True)
    order = np.lexsort((row_U, rollouts.group_N[first_U]))[:MOST]
    rows = first_U[order]
    columns = {"reward": "rewards_N", "advantage": "advantages_N", "cost": "costs_N"}
    group = pd.DataFrame({name: getattr(rollouts, array)[rows] for name, array in columns.items()})
    names = [f"{name}, row {row}" for name, row in zip(rollouts.group_N[rows], row_U[order], strict=True)]
    return f"<p>{escape(repr(rollouts))}</p>{batch_svg(group.assign(response=names, drawn=drawn_U[order]), 'Rollouts')}"


def _short(response: str) -> str:
    """Its beginning and its end, where the answer stands."""
    head = LONGEST // 2
    return response if len(response) <= LONGEST else f"{response[:head]}…{response[head + 1 - LONGEST :]}"
