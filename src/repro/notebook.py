"""For notebooks: a sentence that states a finding stands beside an assertion on the data that it rests on.

    check("lemma-1-odd", least_odd < 1)

shows a small mark under the cell. Where the assertion fails, nothing stops: the sentence is what is wrong, not the
data. The cell shows a warning, in the report too, and the stage that ran the notebook names the check on its last
lines.
"""

import re

CHECK = "application/vnd.repro.check+json"  # the form in which a stage finds a check among a notebook's outputs


class Check:
    """The outcome of one check, drawn by Jupyter and found by the pipeline."""

    def __init__(self, name: str, holds: bool):
        self.name, self.holds = name, holds

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        text = (
            f"checked: {self.name}" if self.holds else f"no longer holds: {self.name}. The text above needs rewriting."
        )
        mark, kind = ("✓", "holds") if self.holds else ("✗", "fails")
        html = f'<p class="check {kind}">{mark} {text}</p>'
        return {CHECK: {"name": self.name, "holds": self.holds}, "text/html": html, "text/plain": f"{mark} {text}"}


def check(name: str, holds: bool) -> None:
    """Assert what the text beside this cell says. `name`: lower-case words joined by hyphens, its own in the notebook.

    ValueError for another name, or for a condition that is an array: reduce it with .all() or .any() first.
    """
    from IPython.display import display

    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ValueError(f"check {name!r}: a name is lower-case letters and digits, joined by hyphens")
    if getattr(holds, "shape", ()) != ():
        raise ValueError(f"check {name!r}: the condition has {holds.shape} entries; reduce it with .all() or .any()")
    display(Check(name, bool(holds)))


def failed(notebook: dict) -> list[str]:
    """Names of the checks in an executed notebook (as JSON) that do not hold."""
    outputs = (output for cell in notebook["cells"] for output in cell.get("outputs", []))
    found = (output.get("data", {}).get(CHECK) for output in outputs)
    return [entry["name"] for entry in found if entry and not entry["holds"]]
