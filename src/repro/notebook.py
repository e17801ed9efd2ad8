"""For notebooks: a sentence that states a finding is followed by an assertion on the data that support it.

    check("lemma-1-odd", least_odd < 1)
    check("zvf-saves-tokens", lambda: arms.loc["zvf", "tokens_high"] < 1)

shows a small mark under the cell. A failed assertion stops nothing, since the sentence is wrong and not the data: the
cell shows a warning, in the report too, and the stage that ran the notebook names the check in its last lines. A
condition given as a function may refer to something missing, such as an arm that was deleted from params.yaml: the
sentence then cannot be checked, and the cell says so.
"""

import re
from collections.abc import Callable
from html import escape

CHECK = "application/vnd.repro.check+json"  # the form in which a stage finds a check among a notebook's outputs


class Check:
    """The outcome of one check, drawn by Jupyter and found by the pipeline. `holds`: None if it cannot be checked."""

    def __init__(self, name: str, holds: bool | None, missing: str = ""):
        self.name, self.holds, self.missing = name, holds, missing

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        if self.holds is None:
            mark, kind, text = "–", "open", f"not checked: {self.name}, since {self.missing} is missing"
        elif self.holds:
            mark, kind, text = "✓", "holds", f"checked: {self.name}"
        else:
            mark, kind, text = "✗", "fails", f"no longer holds: {self.name}. The text above needs rewriting."
        html = f'<p class="check {kind}">{mark} {escape(text, quote=False)}</p>'
        return {CHECK: {"name": self.name, "holds": self.holds}, "text/html": html, "text/plain": f"{mark} {text}"}


def check(name: str, holds: bool | Callable[[], bool]) -> None:
    """Assert what the text next to this cell says. `name`: lower-case words joined by hyphens, unique in the notebook.

    ValueError for another name, or for a condition that is an array: reduce it with .all() or .any() first.
    """
    from IPython.display import display

    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ValueError(f"check {name!r}: a name is lower-case letters and digits, joined by hyphens")
    if callable(holds):
        try:
            holds = holds()
        except (KeyError, IndexError) as error:
            display(Check(name, None, str(error)))
            return
    if getattr(holds, "shape", ()) != ():
        raise ValueError(f"check {name!r}: the condition has {holds.shape} entries; reduce it with .all() or .any()")
    display(Check(name, bool(holds)))


def failed(notebook: dict) -> list[str]:
    """Names of the checks in an executed notebook (as JSON) that do not hold."""
    outputs = (output for cell in notebook["cells"] for output in cell.get("outputs", []))
    found = (output.get("data", {}).get(CHECK) for output in outputs)
    return [entry["name"] for entry in found if entry and entry["holds"] is False]
