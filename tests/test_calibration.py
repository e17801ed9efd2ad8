"""What one part of the runs says of the rest, from differences made by hand."""

import numpy as np
import pytest

from repro.stats.calibration import one_policy_foretells

FAMILIES = ["up", "up", "down", "down", "down"]
EFFECT_A = np.array([0.1, 0.08, -0.1, -0.08, 0.0])


def test_one_base_policy_foretells_another_with_as_many_seeds_as_it_has():
    rng = np.random.default_rng(0)
    d_A_P_S = EFFECT_A[:, None, None] + rng.normal(0, 0.002, (5, 2, 3))
    errors = one_policy_foretells(d_A_P_S, FAMILIES).set_index("seeds")
    assert errors.index.to_list() == [2, 3] and (errors["correlation"] > 0.8).all()
    mean_A_P = d_A_P_S.mean(2)
    assert errors.at[3, "raw"] == pytest.approx(np.sqrt(np.mean((mean_A_P[:, 0] - mean_A_P[:, 1]) ** 2)))
    assert errors["nothing"].to_numpy() == pytest.approx(np.sqrt(np.mean(EFFECT_A**2)), abs=0.003)
    assert ((errors["raw"] < errors["family"]) & (errors["family"] < errors["nothing"])).all()
