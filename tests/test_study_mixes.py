"""The mixes: the queries that an arm of each is trained on, and what equation 8 predicts. By hand."""

import ast

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from repro import settings as settings_module
from repro.closure import notebook_code
from repro.runs import design as designs
from repro.runs.panels import batches


def test_an_arm_of_each_mix_is_trained_on_its_queries():
    design = designs.load()
    panel = design.panels["mixes"]
    for cell in designs.cells(design, ["mixes"]):
        shares = panel.settings["mixes"][dict(cell.varied)["mix"]]["shares"]
        families = designs.settings_of(design, cell).task.families
        assert {name: family.share for name, family in families.items()} == shares
        assert sum(shares.values()) == pytest.approx(1.0)


def test_the_prediction_is_equation_8_of_the_two_ways_to_draw():
    code = ast.parse("\n".join(notebook_code(ROOT / "notebooks/studies/mixes.ipynb")))
    (function,) = (node for node in code.body if getattr(node, "name", "") == "predicted")
    cell = {"np": np, "pd": pd}
    exec(ast.unparse(function), cell)
    predicted = cell["predicted"]
    advantage_N, cost_N = np.array([1.0, -2.0, 0.0, 0.5]), np.array([4.0, 9.0, 25.0, 1.0])
    table = batches(pd.DataFrame({"step": 0, "advantage": advantage_N, "cost": cost_N}))

    def eq_8(p_N: np.ndarray) -> float:
        drawn_N = p_N > 0
        return (p_N @ cost_N) * (advantage_N[drawn_N] ** 2 / p_N[drawn_N]).sum()

    optimal_N = np.abs(advantage_N) / np.sqrt(cost_N)
    assert predicted(table) == pytest.approx(eq_8(optimal_N / optimal_N.sum()) / eq_8(np.full(4, 0.25)))
    assert np.isnan(predicted(table.assign(square=0.0))).all()


def test_the_primaries_of_settings_and_design_are_the_same():
    assert designs.load().groups["primaries"] == settings_module.load(ROOT / "params.yaml").primaries
