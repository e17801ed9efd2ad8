"""What the bill of a run paid for."""

import pandas as pd
import pytest

from repro.experiments import prices


def test_what_a_bill_paid_for_is_counted_over_the_baselines(monkeypatch):
    """Two runs at a price of 1/2: GRPO's 4 of generation and 12 of training cost 12 each, a FLOP of generation 3."""
    runs = pd.DataFrame({"run": ["a", "b"], "panel": "p", "policy": "i", "arm": ["grpo", "bots"], "seed": 40})
    of_b = {"flops_generate": [1.0, 6.0], "flops_profile": [1.0, 1.0], "flops_train": [0.0, 6.0], "rollouts": [4, 24]}
    of_a = {"flops_generate": [0.0, 4.0], "flops_profile": [0.0, 0.0], "flops_train": [0.0, 12.0], "rollouts": [0, 16]}
    curves = pd.concat([pd.DataFrame(of).assign(run=run) for run, of in (("a", of_a), ("b", of_b))])
    curves = curves.assign(step=[0, 2, 0, 2], share=[0.0, 1.0] * 2, flops_score=0.0, queries=curves["rollouts"] // 8)
    curves["flops"] = curves["flops_generate"] + curves["flops_train"]
    steps = {"run": list("aabb"), "computed_rollouts": [6, 10, 4, None], "groups_without_signal": [0.5, 0.3, 0.2, 1.0]}
    tables = {"curves": curves, "steps": pd.DataFrame(steps)}
    monkeypatch.setattr(prices.compare, "rows", lambda table, own: own.merge(tables[table], on="run"))
    paid = prices.paid_for(runs.assign(price=0.5), "grpo").set_index("arm")
    assert paid.loc["grpo", ["drawn", "trained", "generation", "profile", "silent"]].tolist() == [1, 1, 0.5, 0, 0.4]
    found = paid.loc["bots", ["queries", "drawn", "trained", "generation", "profile", "silent"]].tolist()
    assert found == pytest.approx([3, 1.5, 0.25, 18 / 24, 3 / 24, 0.6])
