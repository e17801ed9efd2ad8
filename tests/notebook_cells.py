"""Runs a notebook's code cells without a kernel, so that a test can call the functions defined in them."""

import json
from types import SimpleNamespace

from repro.paths import NOTEBOOKS


def run_cells(notebook: str, **parameters) -> SimpleNamespace:
    """What the code cells of notebooks/<notebook>.ipynb define, run in order; `parameters` replace those of its cell
    tagged `parameters`, and one that is not there raises KeyError."""
    names: dict = {"__name__": f"notebook {notebook}"}
    for cell in json.loads((NOTEBOOKS / f"{notebook}.ipynb").read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        exec(compile("".join(cell["source"]), f"{notebook}, cell {cell['id']}", "exec"), names)
        if "parameters" in cell["metadata"].get("tags", []):
            if unknown := set(parameters) - set(names):
                raise KeyError(f"{notebook} has no parameter {', '.join(sorted(unknown))}")
            names.update(parameters)
    return SimpleNamespace(**names)
