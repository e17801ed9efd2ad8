"""Run a notebook's cells in this process, so that tests can call what the cells define and read their tables."""

import json

from repro.paths import NOTEBOOKS


class Cells(dict):
    """The variables that a notebook's cells leave, by name or as attributes."""

    def __getattr__(self, name):
        if name not in self:
            raise AttributeError(name)
        return self[name]


def run_cells(notebook: str, output=None, **parameters) -> Cells:
    """The variables of notebooks/theory/<notebook>.ipynb after a run with `parameters`; KeyError for one that it lacks.

    Its tables go into the folder `output`, if that is given."""
    names = {"__name__": "__main__"}
    for cell in json.loads((NOTEBOOKS / "theory" / f"{notebook}.ipynb").read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        exec(compile("".join(cell["source"]), f"{notebook}.ipynb, cell {cell['id']}", "exec"), names)
        if "parameters" in cell["metadata"].get("tags", []):
            if unknown := parameters.keys() - names.keys():
                raise KeyError(f"{notebook}.ipynb has no parameter {sorted(unknown)}")
            names |= parameters | {"output": output}
    return Cells(names)
