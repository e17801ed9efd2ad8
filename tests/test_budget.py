"""Lines of Python stay within [tool.repro.budget] of pyproject.toml: what grows says so before it is merged."""

import tomllib

import pytest
from conftest import ROOT

BUDGET = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["repro"]["budget"]
PACKAGES = {f"src/repro/{file.parent.name}" for file in (ROOT / "src/repro").glob("*/__init__.py")}


def lines(folder: str) -> int:
    return sum(len(file.read_text().splitlines()) for file in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", sorted(PACKAGES | {"src/repro", "tests", "benchmarks"} | set(BUDGET)))
def test_a_folder_has_its_budget_of_lines_and_keeps_it(folder):
    found, (most, aim) = lines(folder), BUDGET.get(folder, (0, 0))
    assert found <= most, (
        f"{folder} has {found} lines of Python and may have {most} (the aim is {aim}): delete or merge"
    )
