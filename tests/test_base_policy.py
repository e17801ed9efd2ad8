"""The base policy's groups, counted by hand."""

import numpy as np
import pandas as pd
import pytest

from repro.experiments.base_policy.groups import describe_families, describe_groups


def test_the_regime_is_counted_right():
    rollouts = pd.DataFrame(
        {
            "query": [0, 0, 0, 0, 1, 1, 1, 1],
            "family": ["x"] * 4 + ["y"] * 4,
            "group": [0, 0, 1, 1] * 2,
            "correct": [1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
            "response_tokens": [2, 6, 3, 3, 5, 10, 1, 4],
            "entropy": [0.5] * 8,
        }
    )
    groups = describe_groups(rollouts)
    assert groups["signal"].tolist() == [True, False, False, False]
    assert groups["length_ratio"].tolist() == [3.0, 1.0, 2.0, 4.0]
    families = describe_families(rollouts)
    assert families["success"].to_dict() == {"x": 0.75, "y": 0.0, "all": 0.375}
    assert families["groups_without_signal"].to_dict() == {"x": 0.5, "y": 1.0, "all": 0.75}
    assert families.loc["x", "tokens_right"] == pytest.approx(8 / 3) and families.loc["all", "length_ratio"] == 2.5
    assert families["share"].to_dict() == {"x": 0.5, "y": 0.5, "all": 1.0} and np.isnan(
        families.loc["y", "tokens_right"]
    )
