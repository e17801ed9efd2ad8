"""Learning rates: which is best, what one of its own changes, and what the atlas must hold for it."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from repro import paths, settings
from repro.experiments.rates import plot
from repro.experiments.rates.summary import NoRuns, against, best_rates, mean_areas, sensitivity
from repro.stats.nested import moderate


def table_of(areas: dict) -> pd.DataFrame:
    """{(arm, rate): area on each policy}."""
    rows = [
        (arm, policy, rate, area)
        for (arm, rate), own in areas.items()
        for policy, area in zip("abcd", own, strict=False)
    ]
    return pd.DataFrame(rows, columns=["arm", "policy", "rate", "area"])


def test_the_best_rate_has_the_highest_mean_of_those_that_ran_on_every_policy():
    zvf = {("zvf", 1): (0.1, 0.1), ("zvf", 2): (0.4, 0.3), ("zvf", 4): (0.3, 0.36)}
    table = table_of(zvf | {("pods", 1): (0.5, 0.5), ("pods", 2): (0.2, 0.2), ("pods", 8): (0.9,)})
    best = best_rates(table)
    assert best.loc["zvf"].tolist() == [2, 0, 3] and best.loc["pods"].tolist() == [1, -1, 2]
    assert mean_areas(table).loc["pods"].tolist() == pytest.approx([0.5, 0.2, np.nan, np.nan], nan_ok=True)


def test_an_arm_at_its_rate_is_held_against_the_baseline_at_its_own():
    """By hand: differences on each policy, Student's t with the variance drawn together, Holm over the arms."""
    table = table_of(
        {
            ("grpo", 2): (0.30, 0.31, 0.33, 0.30),
            ("grpo", 4): (0.20, 0.20, 0.20, 0.20),
            ("zvf", 4): (0.34, 0.36, 0.35, 0.35),
            ("pods", 2): (0.31, 0.29, 0.32, 0.33),
        }
    )
    found = against(table, pd.Series({"zvf": 4, "grpo": 2, "pods": 2}), "grpo", 0.95)
    differences = np.array([[0.04, 0.05, 0.02, 0.05], [0.01, -0.02, -0.01, 0.03]])
    variance, freedom = moderate(differences.var(1, ddof=1), 3)
    half = scipy.stats.t.ppf(0.975, freedom) * np.sqrt(variance / 4)
    assert list(found.index) == ["zvf", "pods"] and found["rate"].tolist() == [4, 2]
    assert found["difference"].tolist() == pytest.approx(differences.mean(1).tolist())
    assert found["difference_low"].tolist() == pytest.approx((differences.mean(1) - half).tolist())
    assert found["p_holm"].tolist() == pytest.approx([2 * found["p_value"]["zvf"], found["p_value"]["pods"]])


def test_the_atlas_in_git_names_a_rate_for_every_arm_that_ran_on_all_policies():
    table = sensitivity()
    best = best_rates(table)
    assert table["area"].between(0, 1).all() and set(best["best"].dropna()) <= set(table["rate"])
    figure = plot.by_rate(table, {arm: arm for arm in best.index}, settings.load().baseline, "Which?")
    assert sum(bool(ax.get_title(loc="left")) for ax in figure.axes) == len(best)


def test_without_runs_it_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ATLAS_DATA", tmp_path)
    with pytest.raises(NoRuns, match="make atlas PANEL=tuning"):
        sensitivity()
