"""The benchmark: its intervals and ratios by hand, and that the engine and its earlier self do the same work."""

import importlib.util
from collections import defaultdict
from contextlib import nullcontext
from math import comb

import pytest
import torch
from conftest import ROOT

from benchmarks import speed, speed_tables
from benchmarks.products import counted, named

POLICY = "src/repro/policy/pretrained"


@pytest.mark.parametrize(("n", "rank"), [(6, 1), (8, 1), (9, 2), (30, 10)])
def test_the_interval_is_that_of_the_sign_test(n, rank):
    """Order statistics r and n + 1 − r hold the median with probability 1 − 2 P(Binomial(n, ½) < r)."""
    found = speed_tables.median_interval([float(i) for i in range(n, 0, -1)])
    outside = [2 * sum(comb(n, k) for k in range(r)) / 2**n for r in (rank, rank + 1)]
    assert outside[0] <= 0.05 < outside[1]
    assert (found["low"], found["high"], found["median"]) == (rank, n + 1 - rank, (n + 1) / 2)
    assert found["coverage"] == pytest.approx(1 - outside[0])


def test_the_ratios_point_the_right_way():
    """TRL over the engine, a run before over now, a step now over before."""

    def did(seconds):
        return {
            "seconds": 2 * seconds,
            "cpu_seconds": seconds,
            "step_seconds": seconds,
            "step_cpu_seconds": seconds / 2,
        }

    pairs = [{"before": did(8.0 * k), "after": did(2.0 * k)} for k in (1, 2, 3)]
    by_phase = {"phases": {"generate": 1.0}, "products": {}}
    races = [{"before": did(2.0), "after": did(1.0) | by_phase, "trl": did(k)} for k in (5.0, 6.0, 9.0)]
    ratios = speed_tables.summarise({"race": races, "runs": {"grpo": pairs}})["ratios"]
    assert (ratios["race"]["before"]["cpu"]["median"], ratios["race"]["after"]["wall"]["median"]) == (3.0, 6.0)
    assert ratios["runs"]["grpo"]["cpu"]["median"] == 4.0
    assert ratios["steps"]["grpo"]["cpu"]["median"] == 0.25


@pytest.mark.trl
@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="needs the trl extra")
def test_trl_takes_its_turns():
    policy = ROOT / POLICY
    competitor = speed.Competitor("trl_worker", policy, 1)
    try:
        answer = competitor.ask("step")
    finally:
        competitor.stop()
    assert answer["updates"] == 4
    assert 256 * 5 < answer["generated_tokens"] < 256 * 96


def test_products_are_counted_in_the_phase_that_they_lie_in():
    """Two products of 300 × 300 × 300 in one phase, none in the other; one outside of any is left out."""
    a, seconds = torch.randn(300, 300), defaultdict(float)
    with counted(seconds):
        a @ a
        for phase, times in (("generate", 2), ("update", 0)):
            with named(lambda _: nullcontext())(phase):
                for _ in range(times):
                    a.exp() @ a
    alone = defaultdict(float)
    with counted(alone, "evaluation"):
        a @ a
    assert list(seconds) == ["generate"] and list(alone) == ["evaluation"]
    assert seconds["generate"] > 0 and alone["evaluation"] > 0
