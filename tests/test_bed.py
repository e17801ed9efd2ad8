"""The gates of the bed, written down before its base policies were made (repro.experiments.gates). One that is not met
is a strict expected failure with its figure."""

import pytest

from repro.experiments import gates
from repro.stats import panels

POLICIES, MOST = list("ijklmnop"), 6  # of the eight


def test_the_panel_is_whole():
    runs = panels.made([gates.PANEL], ["policy", "arm", "seed"])
    assert len(runs) == 32 and gates.policies() == POLICIES
    assert runs.groupby(["policy", "arm"]).size().eq(2).all()


def test_training_raises_greedy_accuracy():
    assert gates.met(gates.rises(gates.greedy), 0.15) >= MOST


def test_training_raises_coverage():
    assert gates.met(gates.rises(gates.pass_16), 0.02) >= MOST


def test_a_coin_flip_teaches_nothing():
    for of in (gates.greedy, gates.accuracy):
        assert (gates.rises(of, arm=gates.CHANCE)["low"] <= 0).all()


def test_the_harder_split_moves():
    assert gates.met(gates.rises(gates.accuracy, gates.HARDER), 0.02) >= MOST


def test_base_policies_have_queries_that_they_can_learn():
    assert (gates.queries()["rare"] >= 0.15).all()


def test_base_policies_have_queries_that_they_know():
    assert (gates.queries()["known"] >= 0.10).sum() >= MOST


@pytest.mark.xfail(strict=True, reason="0.73 to 0.81 times their mean, above 0.8 on two of eight base policies")
def test_costs_vary():
    costs = gates.costs()
    assert (costs["tail"] > 2.5).all()  # this one is met: 4.8 to 6.0
    assert (costs["variation"] > 0.8).sum() >= MOST


def test_some_responses_are_cut_and_costs_go_with_advantages():
    costs = gates.costs()
    assert (costs["cut"] > 0).all() and (costs["correlation"].abs() > 0.05).sum() >= MOST


@pytest.mark.xfail(strict=True, reason="0.11 to 0.18% of tokens: most of so small a task are certain")
def test_the_clip_acts():
    assert gates.clipped().between(0.01, 0.20).sum() >= MOST


def test_the_last_quarter_still_improves():
    mean, low, _ = gates.last_quarter()
    assert mean > 0.01 and low > 0


def test_a_run_takes_twenty_seconds():
    assert gates.seconds().median() <= 20
