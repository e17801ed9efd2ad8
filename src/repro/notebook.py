"""Checks in notebooks: each sentence that states a finding is followed by an assertion on the data.

    check("lemma-1-odd", least_odd < 1)

shows a small mark below the cell. A failed check does not stop the notebook, since the sentence is wrong, not the data.
The cell and the report show a warning, and the stage that ran the notebook prints the name of the check.
"""

import re

CHECK = "application/vnd.repro.check+json"  # by which a stage recognises checks among a notebook's outputs


class Check:
    """The outcome of one check, rendered by Jupyter and read by the pipeline."""

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
    """Assert the text above this cell. `name`: lower-case words joined by hyphens, unique in the notebook.

    ValueError for any other name, or for a condition that is an array: reduce it with .all() or .any() first.
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
    checks = (output.get("data", {}).get(CHECK) for output in outputs)
    return [entry["name"] for entry in checks if entry and not entry["holds"]]
