"""The proxy gap: Theorem 4.2 by hand and by brute force, D.5 against the exact mean over every outcome of the noise."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_cells import run_cells

from repro.stats.verdicts import words
from repro.theory import sgd as cost_aware_sgd
from repro.theory.proxy import chi_square, cost_biased, excess, excess_of_factors, product, sampling

PARAMETERS = dict(n_components=60, norm_low=0.2, cost_high=50.0, n_instances=200, n_draws=400, n_groups=16, seed=2)

magnitudes = st.floats(1e-3, 1e3)


@st.composite
def instances(draw):
    """Norms, costs and factors of two to eight components."""
    n = draw(st.integers(2, 8))
    return tuple(np.array(draw(st.lists(magnitudes, min_size=n, max_size=n))) for _ in range(3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("proxy")


@pytest.fixture(scope="module")
def cells(folder):
    """The notebook at a small size: its functions, and its tables in `folder`."""
    return run_cells("proxy", output=folder, **PARAMETERS)


def test_two_components_by_hand():
    # G = (1, 2), c = (1, 4): p* = (½, ½), p̃* = (1/5, 4/5). The norm alone as signal/√c: (2, 2) → p = (2/3, 1/3).
    norms_n, costs_n = np.array([1.0, 2.0]), np.array([1.0, 4.0])
    p_n = sampling([2.0, 2.0], costs_n)
    assert p_n == pytest.approx([2 / 3, 1 / 3])
    assert cost_biased([0.5, 0.5], costs_n) == pytest.approx([1 / 5, 4 / 5])
    assert cost_biased(p_n, costs_n) == pytest.approx([1 / 3, 2 / 3])
    # χ² = (2/15)²/(1/3) + (2/15)²/(2/3) = 4/225 · 4.5 = 0.08; J: C = 2, Σ G²/p = 1.5 + 12, over (1 + 4)² = 27/25.
    assert excess(norms_n, costs_n, p_n) == pytest.approx(0.08)
    assert product(norms_n, costs_n, p_n) == pytest.approx(27 / 25)
    # w = (2, 1), q = (1/5, 4/5): (2/5 + 4/5)(1/10 + 4/5) = 1.08.
    assert excess_of_factors(norms_n, costs_n, [2.0, 1.0]) == pytest.approx(0.08)


@given(instances())
@settings(deadline=None)
def test_three_forms_of_theorem_4_2_agree_and_do_not_pass_the_worst_case(instance):
    norms_n, costs_n, factors_n = instance
    p_n = sampling(norms_n * factors_n, costs_n)
    gap = excess(norms_n, costs_n, p_n)
    assert product(norms_n, costs_n, p_n) == pytest.approx(1 + gap, rel=1e-9)
    assert excess_of_factors(norms_n, costs_n, factors_n) == pytest.approx(gap, rel=1e-9, abs=1e-9)
    spread = factors_n.max() / factors_n.min()
    assert gap <= (spread - 1) ** 2 / (4 * spread) * (1 + 1e-9) + 1e-9  # Kantorovich
    best = cost_aware_sgd.optimal_cost_product(norms_n, costs_n)
    assert cost_aware_sgd.cost_product(norms_n, costs_n, p_n) / best == pytest.approx(1 + gap, rel=1e-9)


def test_the_worst_case_is_attained_by_two_halves():
    # Two components of equal share q = ½, one overestimated four times: ½·5 · ½·(1/4 + 1) = 1.5625 = 1 + 9/16.
    assert excess_of_factors([1.0, 1.0], [1.0, 1.0], [4.0, 1.0]) == pytest.approx(9 / 16)


def test_zero_norms_and_zero_probabilities():
    costs_n = np.array([2.0, 8.0])
    # Nothing to be learnt from the second: half the draws on it cost C = 5, Σ G²/p = 2; the least is 2: 5 times.
    assert product([1.0, 0.0], costs_n, [0.5, 0.5]) == pytest.approx(5)
    assert excess([1.0, 0.0], costs_n, [0.5, 0.5]) == pytest.approx(4)
    assert product([1.0, 0.0], costs_n, [1.0, 0.0]) == pytest.approx(1) and excess([1, 0], costs_n, [1, 0]) == 0
    assert product([1.0, 1.0], costs_n, [1.0, 0.0]) == excess([1.0, 1.0], costs_n, [1.0, 0.0]) == np.inf
    assert chi_square([[0.5, 0.5], [1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]).tolist() == [np.inf, 0.0]


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (sampling, ([0.0, 0.0], [1.0, 1.0]), "every signal is zero"),
        (excess, ([1.0, 1.0], [1.0, 1.0], [0.5, 0.6]), r"probabilities sum to 1\.1"),
    ],
)
def test_impossible_values_are_refused(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)


def test_the_formulas_in_the_cells_are_those_of_the_library(cells):
    norms_n, costs_n, p_n = np.array([3.0, 0.0, 2.0, 0.0]), np.array([1.0, 9.0, 4.0, 2.0]), np.array([0.5, 0.2, 0.3, 0])
    assert cells.optimal(norms_n, costs_n).tolist() == sampling(norms_n, costs_n).tolist() == [0.75, 0.0, 0.25, 0.0]
    assert cells.relative_cost(norms_n, costs_n, p_n) == product(norms_n, costs_n, p_n)
    assert cells.gap(norms_n, costs_n, p_n) == excess(norms_n, costs_n, p_n)
    assert cells.relative_cost(norms_n, costs_n, p_n[::-1]) == cells.gap(norms_n, costs_n, p_n[::-1]) == np.inf
    factors_n = np.array([1.0, 5.0, 2.0, 0.3])
    ours, library = (f(norms_n + 1, costs_n, factors_n) for f in (cells.excess_of_factors, excess_of_factors))
    assert ours == pytest.approx(library)


def test_noise_and_correlation_are_one_knob(cells):
    rng = np.random.default_rng(0)
    norms_n = rng.uniform(1.0, 2.0, 200_000)
    for draw in cells.FAMILIES.values():
        proxy_n = draw(rng, norms_n, 0.5 * norms_n.std(), 1)[0]
        assert np.corrcoef(norms_n, proxy_n)[0, 1] == pytest.approx(1 / np.sqrt(1.25), abs=0.005)
        assert proxy_n.mean() == pytest.approx(norms_n.mean(), abs=0.003)
    assert cells.curves["correlation"].to_numpy() == pytest.approx((1 + cells.curves["noise"] ** 2) ** -0.5)


def test_theorem_d5_by_hand(cells):
    # G = (1, 3), c = (1, 4): Σ√c/G = 1 + 2/3, Σ G√c = 7.
    assert cells.theorem_d5(np.array([1.0, 3.0]), np.array([1.0, 4.0]), 0.2) == pytest.approx(0.04 * (5 / 3) / 7)


def test_the_exact_excess_is_the_mean_over_every_outcome(cells):
    # ξ = ±σ for each of three components: E[1/w] − 1 = σ²/(G² − σ²), and eight outcomes.
    norms_n, costs_n, sd = np.array([1.0, 2.0, 1.5]), np.array([1.0, 9.0, 2.0]), 0.6
    outcomes = [norms_n + sd * np.array(signs) for signs in itertools.product((-1, 1), repeat=3)]
    mean = np.mean([excess(norms_n, costs_n, sampling(proxy_n, costs_n)) for proxy_n in outcomes])
    assert cells.expected_excess(norms_n, costs_n, sd**2 / (norms_n**2 - sd**2)) == pytest.approx(mean)


def test_lognormal_noise_is_what_d5_describes_less_the_diagonal_term(cells):
    norms_n, costs_n, level = np.array([1.0, 2.0, 1.5]), np.array([1.0, 9.0, 2.0]), 0.7
    sd = level * norms_n.std()
    exact = cells.expected_excess(norms_n, costs_n, cells.inverse_excess("lognormal", norms_n, sd))
    diagonal = sd**2 * costs_n.sum() / (norms_n @ np.sqrt(costs_n)) ** 2
    assert exact == pytest.approx(cells.theorem_d5(norms_n, costs_n, sd) - diagonal)


def test_the_simulation_agrees_with_the_exact_mean(cells):
    curves = cells.curves
    lognormal = curves[(curves["family"] == "lognormal") & (curves["noise"] <= 1)]
    away = (lognormal["mean"] - lognormal["exact"]).abs() / (lognormal["high"] - lognormal["mean"])
    assert (away < 1.5).all()  # in half-widths of the 95% interval
    assert np.isinf(curves.loc[curves["family"] == "gaussian", "exact"]).all()


def test_uniform_noise_has_the_inverse_mean_of_its_integral(cells):
    grid = (np.arange(200_000) + 0.5) / 100_000 - 1
    sd = 0.4
    expected = np.mean(1 / (1 + np.sqrt(3) * sd * grid)) - 1
    inverse_n = cells.inverse_excess("uniform", np.array([1.0, 0.5]), sd)
    assert inverse_n[0] == pytest.approx(expected, rel=1e-6) and inverse_n[1] == np.inf


def test_gaussian_noise_leaves_components_without_a_chance(cells):
    norms_n, sd = np.array([0.5, 1.0]), 0.5
    assert cells.unreachable(norms_n, sd) == pytest.approx([0.158655, 0.022750], abs=1e-6)
    assert cells.any_unreachable(norms_n, sd) == pytest.approx(1 - 0.841345 * 0.977250, abs=1e-6)


def test_breaking_points_are_where_the_exact_form_puts_them(cells):
    noise, norms_n, costs_n = cells.breaks.set_index("family")["noise"], cells.norms_n, cells.costs_n
    sd = noise["uniform"] * norms_n.std()
    exact = cells.expected_excess(norms_n, costs_n, cells.inverse_excess("uniform", norms_n, sd))
    assert cells.theorem_d5(norms_n, costs_n, sd) / exact == pytest.approx(0.9, abs=0.005)
    assert cells.any_unreachable(norms_n, noise["gaussian"] * norms_n.std()) == pytest.approx(0.5, abs=0.01)
    assert cells.breaks.set_index("family").loc["lognormal", "correlation"] == 0


def test_an_ablation_by_hand(cells):
    # Half of 40 rollouts live. With little noise p is 1/20 there, smoothed by half 1/40 + 1/80: J = (1/20)/(3/80).
    sizes_N, costs_N = np.tile([1.0, 1.0, 0.0, 0.0], 10), np.full(40, 9.0)
    table = cells.ablate(sizes_N, costs_N, 0.5, 500)
    assert table["uniform"].to_numpy() == pytest.approx(2.0)
    first, last = table.iloc[0], table.iloc[-1]
    assert first["smoothed"] == pytest.approx(4 / 3, rel=0.02) and first["unreachable"] == first["missing"] == 0
    # σ = 8·½ = 4: a live one is out of reach with Φ(−1/4), and E max(0, ξ) = 4φ(0) against Φ(1/4) + 4φ(1/4).
    assert last["unreachable_predicted"] == pytest.approx(0.4013, abs=1e-4)
    assert last["unreachable"] == pytest.approx(0.4013, abs=0.02)
    assert last["missing"] == pytest.approx(last["unreachable"], rel=1e-12)  # all live sizes are equal
    assert last["silent_cost"] == pytest.approx(1.5958 / (1.5958 + 2.1455), abs=0.02)
    assert last["taylor"] == pytest.approx(1 + 16)


def test_the_break_even_lies_between_its_levels(cells):
    table = cells.ablation
    level = cells.break_even(table)
    below, above = table[table["noise"] <= level], table[table["noise"] > level]
    assert (below["smoothed"] <= below["uniform"]).all() and above["smoothed"].iloc[0] > above["uniform"].iloc[0]
    assert cells.break_even(table.assign(uniform=1e9)) == np.inf and cells.break_even(table.assign(uniform=0.0)) == 0


def test_more_smoothing_costs_more_without_noise_and_tolerates_more_of_it(cells):
    assert (np.diff(cells.evens["clean"]) > 0).all() and (np.diff(cells.evens["noise"]) > 0).all()


def test_a_batch_has_standardised_groups(cells):
    sizes_N, _ = cells.draw_batch(50, 8)
    groups_n_G = sizes_N.reshape(50, 8)
    live_n = groups_n_G.any(axis=1)
    assert (groups_n_G[live_n] > 0).all() and 0.2 < live_n.mean() < 0.9
    assert (groups_n_G[live_n] ** 2).mean(axis=1) == pytest.approx(np.ones(live_n.sum()))


def test_every_verdict_has_its_words(cells, folder):
    verdicts = pd.read_parquet(folder / "verdicts.parquet").set_index("id")
    assert list(verdicts.index) == list(words("proxy"))
    certain = ["theorem-4-2-identity", "kantorovich-bound", "lognormal-d5-bounds", "ablation-d5-too-low"]
    assert (verdicts.loc[certain, "outcome"] == "holds").all()
    expected = {"identity", "curves", "breaks", "cases", "ablation", "evens", "verdicts"}
    assert {path.name for path in folder.iterdir()} == {f"{name}.parquet" for name in expected}
