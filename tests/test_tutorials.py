"""The tutorials run, and print the numbers that are stored in them.

Cells tagged `numbers` are compared. What is only read or computed once agrees to the digits printed. Training amplifies
the last bits, which differ between kinds of CPU: there the stored numbers are another draw of the same run, and must
agree within the tolerance, some three standard deviations between seeds.
"""

import os
import re
import sys

import nbformat
import pytest
from conftest import ROOT
from nbclient import NotebookClient

from repro.notebook import failed

TOLERANCES = {
    "one_step": {"rel": 1e-2, "abs": 2e-3},
    "your_own_sampler": {"rel": 0.3, "abs": 0.09},
    "reading_the_study": {"rel": 1e-6, "abs": 1e-6},
    "your_rollouts": {"rel": 1e-3, "abs": 1e-3},
}
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")


def numbers(notebook) -> list[list[float]]:
    """The numbers that each cell tagged `numbers` prints or shows as text."""
    values = []
    for cell in notebook.cells:
        if "numbers" in cell.metadata.get("tags", []):
            texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
            values.append([float(text) for text in NUMBER.findall("\n".join(map("".join, texts)))])
    return values


def test_the_tutorials_are_these():
    assert {path.stem for path in (ROOT / "notebooks" / "tutorials").glob("*.ipynb")} == {*TOLERANCES, "tour", "trl"}


@pytest.mark.slow
@pytest.mark.parametrize("name", TOLERANCES)
def test_a_tutorial_runs_and_prints_its_stored_numbers(name, tools, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tools / "python"))  # of kernels
    path = ROOT / "notebooks" / "tutorials" / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    assert any(notebook.cells[i].get("outputs") for i in range(len(notebook.cells))), "execute it before committing"
    client = NotebookClient(notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": path.parent}})
    expected = numbers(notebook)
    client.execute(env={**os.environ, "REPRO_ROOT": str(ROOT)})
    found = numbers(notebook)
    assert len(expected) >= 3 and [len(cell) for cell in found] == [len(cell) for cell in expected]
    for cell, values in zip(expected, found, strict=True):
        assert values == pytest.approx(cell, **TOLERANCES[name])
    if name != "your_own_sampler":
        assert failed(notebook) == []
