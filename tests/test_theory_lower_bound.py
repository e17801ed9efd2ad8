"""The lower bound: its pieces by hand, S by brute force, and instances small enough to know the best algorithm."""

import functools
import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_cells import run_cells

from repro.theory.lower_bound import (
    COIN,
    GAUSSIAN,
    capped_bound,
    capped_means,
    certified_cost,
    clipped_mean,
    maximal_prefix,
    prefix_bound,
    prefix_means,
)

costs_lists = st.lists(st.floats(1e-2, 1e4), min_size=1, max_size=7)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """What the cells of notebooks/theory/lower_bound.ipynb leave behind, and the folder `output` with its files."""
    small = dict(n_components=400, epsilon=0.2, spread=100.0, n_trials=60, seed=0)
    return run_cells("lower_bound", tmp_path_factory.mktemp("lower_bound"), **small)


@given(costs_lists, st.floats(0.01, 2.0))
@settings(deadline=None)
def test_the_maximal_prefix_is_the_best_of_all_subsets(costs, limit):
    roots_n, n = np.sqrt(np.sort(costs)), len(costs)
    best = 0.0
    for size in range(1, n + 1):
        for chosen in itertools.combinations(roots_n, size):
            if max(chosen) <= limit * sum(chosen) * (1 + 1e-12):
                best = max(best, sum(chosen))
    # G/(2 a n ε) = limit, by the choice of ε
    size = maximal_prefix(costs, 1.0, 1 / (2 * n * limit), 1.0)
    assert roots_n[:size].sum() == pytest.approx(best, rel=1e-9)


def test_short_prefixes_may_fail_where_a_longer_one_holds():
    # Equal costs: |S| = k holds when 1/k ≤ limit, so for k ≥ 4 alone.
    assert maximal_prefix(np.ones(6), 1.0, 1 / (2 * 6 * 0.25), 1.0) == 6
    assert maximal_prefix([1.0, 1.0, 1.0, 1.0, 100.0], 1.0, 1 / (2 * 5 * 0.25), 1.0) == 4
    assert maximal_prefix(4.0 ** np.arange(5), 1.0, 1 / (2 * 5 * 0.25), 1.0) == 0


@given(costs_lists, st.floats(0.01, 0.49))
@settings(deadline=None)
def test_capped_means_reach_the_mean_asked_for_and_never_pass_the_cap(costs, mean):
    costs_n = np.array(costs)
    means_n = capped_means(costs_n, 1.0, mean, 1.0)
    assert means_n.mean() == pytest.approx(mean) and means_n.max() <= 0.5
    free_n = means_n < 0.5 * (1 - 1e-9)
    rates = means_n[free_n] / np.sqrt(costs_n[free_n])
    assert rates == pytest.approx(np.full(len(rates), rates[:1].mean() if len(rates) else 0.0))


def test_means_by_hand():
    # √c = (1, 2, 10); a n ε = 0.8: λ = (0.8 − 0.5)/3 = 0.1. The paper's S at G/(2·0.8) = 0.625: 10/13 fails, 2/3 fails.
    costs_n = np.array([1.0, 4.0, 100.0])
    assert capped_means(costs_n, 1.0, 0.8 / 3, 1.0) == pytest.approx([0.1, 0.2, 0.5])
    assert prefix_means(costs_n, 1.0, 0.8 / 3, 1.0).tolist() == [0, 0, 0]
    # At a n ε = 0.6 the limit is 0.833, all of S: λ = 0.6/13. In the order of the costs as given.
    assert prefix_means(costs_n[::-1], 1.0, 0.2, 1.0) == pytest.approx([6 / 13, 1.2 / 13, 0.6 / 13])
    assert capped_means(costs_n, 1.0, 0.6, 1.0).tolist() == [0, 0, 0]  # more than G/2 everywhere


def test_a_bound_by_hand():
    # 100 coins of mean ½ and cost 3: m = ½, s = √(0.75/100), v = 1 − (ε + s)/m, K = ln 3/2.
    v = 1 - (0.1 + np.sqrt(0.0075)) / 0.5
    cost, signal = certified_cost(np.full(100, 0.5), np.full(100, 3.0), 1.0, 0.1, COIN)
    assert signal == pytest.approx(0.5) and cost == pytest.approx(2 * v**2 * 3 / (0.5 * np.log(3)))
    # Gaussians: K = 8 μ², the variance at most ¼.
    signal = clipped_mean(0.25)
    v = 1 - (0.1 + 0.05) / signal
    assert certified_cost(np.full(100, 0.25), np.ones(100), 1.0, 0.1, GAUSSIAN)[0] == pytest.approx(2 * v**2 / 0.5)
    assert certified_cost(np.zeros(3), np.ones(3), 1.0, 0.1, COIN) == (0.0, 0.0)


def test_the_clipped_mean_is_that_of_clipped_draws_and_at_least_0_84_of_the_mean():
    draws = np.random.default_rng(0).standard_normal(400_000)
    for mean in (0.0, 0.2, 0.5):
        clipped = np.clip(mean + 0.5 * draws, -1, 1)
        assert clipped_mean(mean) == pytest.approx(clipped.mean(), abs=0.003)
        assert clipped.var() <= 0.25 and clipped_mean(mean) >= 0.84 * mean


def best_policy(means_n, costs_n, price):
    """(cost, error) of the adaptive algorithm with the least error + price · cost on coins: all partial outcomes."""
    n = len(means_n)
    slopes_O_n = np.array(list(itertools.product((-1.0, 1.0), repeat=n)))
    mass_O = sum(np.prod((1 + sign * slopes_O_n * means_n) / 2, axis=1) / 2 for sign in (-1, 1))
    mean_O = slopes_O_n.mean(axis=1)
    mass, linear, size = (array.reshape((2,) * n) for array in (mass_O, mass_O * mean_O, mass_O * abs(mean_O)))

    @functools.cache
    def solve(known):
        """(error + price · cost, cost, error), each times the chance of `known`: an outcome a place, None if open."""
        here = tuple(slice(None) if side is None else side for side in known)
        error = size[here].sum() - abs(linear[here].sum())  # the best x is −1 or 1
        options = [(error, 0.0, error)]
        for i in (i for i in range(n) if known[i] is None):
            parts = [solve((*known[:i], side, *known[i + 1 :])) for side in (0, 1)]
            cost = costs_n[i] * mass[here].sum()
            total, spent, error = (sum(values) for values in zip(*parts, strict=True))
            options.append((total + price * cost, spent + cost, error))
        return min(options)

    return solve((None,) * n)[1:]


def test_no_algorithm_beats_the_bound_on_an_instance_small_enough_to_solve():
    costs_n = np.array([1.0, 1.0, 2.0, 3.0, 4.0, 8.0])
    shown = []
    for means_n in (np.full(6, 0.5), np.minimum(0.35 * np.sqrt(costs_n), 0.6)):
        for price in (0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1):
            cost, error = best_policy(means_n, costs_n, price)
            bound = certified_cost(means_n, costs_n, 1.0, max(error, 1e-12), COIN)[0]
            assert bound <= cost + 1e-12
            shown.append(bound)
    assert max(shown) > 0.1


@given(costs=st.lists(st.floats(1.0, 1e6), min_size=40, max_size=60))
@settings(deadline=None, max_examples=20)
def test_capping_is_never_worse_and_both_stay_below_what_suffices(notebook, costs):
    for slopes in (COIN, GAUSSIAN):
        capped, prefix = (bound(costs, 1.0, 0.15, slopes).cost for bound in (capped_bound, prefix_bound))
        # The grid of separations is the same, so that the comparison is exact.
        assert prefix <= capped * (1 + 1e-9)
        for upper in ("sgd_cost", "subset_cost", "bisection_cost"):
            assert capped <= notebook[upper](np.array(costs), 1.0, 0.15)


def test_bounds_are_free_of_units(notebook):
    costs_n = notebook["cost_quantiles"]("pareto", 300, 50.0)
    for bound in (capped_bound, prefix_bound):
        one = bound(costs_n, 1.0, 0.1).cost
        assert one > 0 and bound(7 * costs_n, 3.0, 0.3).cost == pytest.approx(7 * one)


def test_upper_bounds_by_hand(notebook):
    sgd_cost, subset_cost, bisection_cost = (notebook[name] for name in ("sgd_cost", "subset_cost", "bisection_cost"))
    costs_n = np.array([100.0, 1.0])
    assert sgd_cost(np.array([1.0, 9.0]), 2.0, 0.5) == pytest.approx((2 * 2 / 0.5) ** 2)
    # ε = 0.6 G, n = 2: leaving out the more expensive leaves 0.1: (0.5·1/0.1)² = 25 against (0.5·11/0.6)² = 84.03.
    assert subset_cost(costs_n, 1.0, 0.6) == pytest.approx(25)
    assert subset_cost(costs_n, 1.0, 0.4) == pytest.approx(sgd_cost(costs_n, 1.0, 0.4))
    assert bisection_cost(np.array([1.0, 2.0]), 1.0, 1 / 1000) == pytest.approx(30)


def test_costs_run_from_one_to_the_spread(notebook):
    for family in notebook["FAMILIES"]:
        costs_n = notebook["cost_quantiles"](family, 50, 1e4)
        assert costs_n[0] == pytest.approx(1) and costs_n[-1] == pytest.approx(1e4) and (np.diff(costs_n) > 0).all()
    with pytest.raises(ValueError, match="costs are 0"):
        capped_bound([1.0, 0.0], 1.0, 0.1)


def test_slopes_have_the_means_of_their_instance(notebook):
    bound = capped_bound(notebook["cost_quantiles"]("exponential", 50, 100.0), 2.0, 0.3)
    for slopes in (COIN, GAUSSIAN):
        slopes_K_n = notebook["draw_slopes"](bound, slopes, 2.0, 40_000, np.random.default_rng(0))
        assert np.abs(slopes_K_n).max() <= 2.0
        signs_K = np.sign(slopes_K_n @ bound.means_n)  # tells the sign of the trial but for a few
        assert (signs_K[:, None] * slopes_K_n).mean() == pytest.approx(
            2 * slopes.mean(bound.means_n / 2).mean(), rel=0.05
        )


def test_a_pass_ends_at_the_corner_that_its_slopes_point_to(notebook):
    run_passes = notebook["run_passes"]
    slopes_K_n, costs_n = np.array([[1.0, -0.5, -0.8]]), np.array([5.0, 1.0, 2.0])
    error_K_M, cost_K_M = run_passes(slopes_K_n, costs_n, np.array([1, 2, 0]), np.ones(3))
    assert cost_K_M.tolist() == [[1.0, 3.0, 8.0]]
    assert error_K_M == pytest.approx(np.array([[0.0, 0.0, 0.0]]))  # ḡ = −0.1: each sum is negative
    error_K_M, _ = run_passes(slopes_K_n, costs_n, np.array([0, 1, 2]), np.ones(3))
    assert error_K_M == pytest.approx(np.array([[0.2, 0.2, 0.0]]))


def test_sgd_on_one_component_is_walked_by_hand(notebook):
    # Step 0.4 along slope 1 from 0: queried at 0, −0.4, −0.8, −1 (projected): average −0.55.
    average_K, cost_K = notebook["run_sgd"](
        np.ones((2, 1)), np.array([3.0]), np.ones(1), 0.4, 4, np.random.default_rng(0)
    )
    assert average_K == pytest.approx([-0.55, -0.55]) and cost_K.tolist() == [12.0, 12.0]


def test_sgd_draws_in_proportion_and_weighs_against_it(notebook):
    slopes_K_n = np.tile([1.0, 0.5], (50_000, 1))
    p_n = np.array([0.8, 0.2])
    _, cost_K = notebook["run_sgd"](slopes_K_n, np.array([1.0, 11.0]), p_n, 0.01, 1, np.random.default_rng(0))
    assert cost_K.mean() == pytest.approx(3.0, abs=0.1)
    average_K, _ = notebook["run_sgd"](slopes_K_n, np.array([1.0, 11.0]), p_n, 0.01, 2, np.random.default_rng(0))
    assert 2 * average_K.mean() == pytest.approx(-0.0075, abs=1e-4)  # unbiased for ḡ = 0.75


def test_every_algorithm_is_compared_with_its_bound(notebook):
    runs, curves, ratios = (notebook[name] for name in ("runs", "curves", "ratios"))
    assert set(ratios["algorithm"]) == set(notebook["ALGORITHMS"])
    assert len(ratios) == len(notebook["ALGORITHMS"]) * len(notebook["frontiers"].groupby(["instance", "family"]))
    assert (ratios["ratio"] > 0.5).all() and (ratios["ratio_low"] <= ratios["ratio"] * 1.0001).all()
    first = runs[(runs["budget"] == 0) & (runs["algorithm"] == "informed")]
    means = first.groupby(["instance", "family"])["error"].mean()
    again = curves[(curves["budget"] == 0) & (curves["algorithm"] == "informed")].set_index(["instance", "family"])
    assert again["error"].to_dict() == pytest.approx(means.to_dict())


def test_the_crossing_of_a_known_curve(notebook):
    rows = next(iter(notebook["runs"].groupby(["instance", "family", "algorithm"], sort=False)))[1]
    # error = 0.8, 0.4, 0.2, 0.1, 0.05 at costs 1, 2, 4, 8, 16: error 0.3 is at 0.8/0.3.
    known = rows.assign(error=0.8 / 2.0 ** rows["budget"], cost=2.0 ** rows["budget"])
    cost_B = notebook["cost_to_reach"](known, 0.3, seed=0, n_resamples=5)
    assert cost_B == pytest.approx(np.full(6, 0.8 / 0.3))
    assert np.isinf(notebook["cost_to_reach"](known, 0.01, seed=0, n_resamples=5)).all()


def test_closed_forms_hold_exactly_and_all_is_written(notebook):
    verdicts = pd.read_parquet(notebook["output"] / "verdicts.parquet")
    closed = verdicts[verdicts["low"] == verdicts["high"]]
    assert len(closed) == 5 and (closed["outcome"] == "holds").all()
    names = {"spreads", "accuracies", "sums", "curves", "ratios", "frontiers", "verdicts"}
    assert {path.name for path in notebook["output"].iterdir()} == {f"{name}.parquet" for name in names}
