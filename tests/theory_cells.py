"""Run a theory notebook's cells in this process, so that tests can call what the cells define and read their tables."""

import json
from pathlib import Path

NOTEBOOKS = Path(__file__).parents[1] / "notebooks/theory"


def run_cells(name: str, output: Path, **parameters) -> dict:
    """The variables of notebooks/theory/<name>.ipynb after a run with `parameters` that writes into `output`."""
    names = {"__name__": "__main__"}
    for cell in json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        exec(compile("".join(cell["source"]), f"{name}.ipynb, cell {cell['id']}", "exec"), names)
        if "parameters" in cell["metadata"].get("tags", []):
            if unknown := parameters.keys() - names.keys():
                raise ValueError(f"{name}.ipynb has no parameter {sorted(unknown)}")
            names |= parameters | {"output": output}
    return names
