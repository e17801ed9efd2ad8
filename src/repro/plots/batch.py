"""One group of responses as a picture: what each earned, what it cost, how likely it was to be drawn, how often it was.

SVG from a template, not matplotlib: a README shows it as an image, which follows the reader's dark mode only if the
file says how.
"""

from pathlib import Path

import pandas as pd

TEMPLATE = Path(__file__).with_name("batch.svg.j2")
LONGEST = 15  # characters of a response that fit next to the bars


def batch_svg(group: pd.DataFrame, title: str, source: str = "") -> str:
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


def _short(response: str) -> str:
    """Its beginning and its end, where the answer stands."""
    head = LONGEST // 2
    return response if len(response) <= LONGEST else f"{response[:head]}…{response[head + 1 - LONGEST :]}"
