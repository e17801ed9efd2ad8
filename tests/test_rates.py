"""Learning rates: which is best, and what its panels must hold."""

import numpy as np
import pandas as pd
import pytest

from repro import paths
from repro.settings.text import read_mapping
from repro.stats.panels import NoRuns
from repro.stats.rates import PRICE, best_rates, by_price, held_out, mean_areas, policies, sensitivity


def table_of(areas: dict) -> pd.DataFrame:
    """{(arm, rate): area on each policy}."""
    rows = [
        ("tuning", arm, policy, rate, area)
        for (arm, rate), own in areas.items()
        for policy, area in zip("abcd", own, strict=False)
    ]
    return pd.DataFrame(rows, columns=["panel", "arm", "policy", "rate", "area"])


def test_the_best_rate_has_the_highest_mean_of_those_that_ran_on_every_policy():
    """A policy that the panel is not through with counts for none, and a rate of the edges where it ran on all."""
    zvf = {("zvf", 1): (0.1, 0.1, 0.9), ("zvf", 2): (0.4, 0.3), ("zvf", 4): (0.3, 0.36)}
    table = table_of(zvf | {("pods", 1): (0.5, 0.5, 0.1), ("pods", 2): (0.2, 0.2)})
    edge = table_of({("pods", 8): (0.9,)}).assign(panel="tuning-edges")
    table = pd.concat([table, edge], ignore_index=True)
    assert policies(table) == ["a", "b"]
    best = best_rates(table)
    assert best.loc["zvf"].tolist() == [2, 0, 3] and best.loc["pods"].tolist() == [1, -1, 2]
    assert mean_areas(table).loc["pods"].tolist() == pytest.approx([0.5, 0.2, np.nan, np.nan], nan_ok=True)


def test_the_runs_in_git_names_rates_that_were_tried():
    table = sensitivity()
    best = best_rates(table)["best"].dropna()
    assert table["area"].between(0, 1).all() and len(best) and set(best) <= set(table["rate"])


def test_without_runs_it_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "PANELS", tmp_path)
    with pytest.raises(NoRuns, match="make runs PANEL=tuning"):
        sensitivity()


def test_a_gain_counts_where_its_rate_was_not_chosen():
    """On a and b rate 4 is better, on c rate 2: each is judged by what the other two would choose."""
    table = table_of({("zvf", 2): (0.3, 0.3, 0.5), ("zvf", 4): (0.35, 0.45, 0.2), ("pods", 2): (0.1, 0.2, 0.3)})
    found = held_out(table, 2).set_index(["arm", "policy"])
    assert found.loc["zvf", "chosen"].tolist() == [2, 2, 4] and not found.loc["pods", "gain"].any()
    assert found.loc["zvf", "gain"].tolist() == pytest.approx([0, 0, -0.3])
    with pytest.raises(NoRuns, match="whole on base policy a alone"):
        held_out(table[table["policy"] == "a"], 2)


@pytest.mark.parametrize(("price", "panel"), [(0.27, "confirm-27"), (0.75, "confirm-75")])
def test_arms_are_confirmed_at_the_rates_that_were_best_for_them(price, panel):
    declared = read_mapping(paths.DESIGN)["panels"][panel]
    best = best_rates(by_price()[price])
    assert {arm: [rate] for arm, rate in best["best"].items()} == {
        a: list(map(float, r)) for a, r in declared["rates"].items()
    }
    assert (best["edge"] == 0).all() and declared["vary"] == {PRICE: [price]}
