"""The proxy gap: Theorem 4.2 by hand and by brute force, D.5 against the exact mean over every outcome of the noise."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.theory import sgd as cost_aware_sgd
from repro.theory.proxy import noise as noise
from repro.theory.proxy.ablation import Batch, ablate, break_even, break_evens, draw_batch
from repro.theory.proxy.closed_forms import (
    chi_square,
    cost_biased,
    excess,
    excess_of_factors,
    product,
    sampling,
    worst_excess,
)
from repro.theory.proxy.validation import (
    breaking_points,
    check_identity,
    counter_examples,
    draw_instance,
    noise_curves,
)
from repro.theory.proxy.verdicts import conclude, judge
from repro.theory.verdict import save

magnitudes = st.floats(1e-3, 1e3)


@st.composite
def instances(draw):
    """Norms, costs and factors of two to eight components."""
    n = draw(st.integers(2, 8))
    return tuple(np.array(draw(st.lists(magnitudes, min_size=n, max_size=n))) for _ in range(3))


@pytest.fixture(scope="module")
def checks():
    norms_n, costs_n = draw_instance(60, 0.2, 1.0, 1.0, 50.0, seed=1)
    ablation = ablate(draw_batch(16, 8, seed=2), beta=0.1, n_draws=200, seed=3)
    return {
        "identity": check_identity(200, seed=0),
        "curves": noise_curves(norms_n, costs_n, 400, seed=0),
        "breaks": breaking_points(norms_n, costs_n),
        "cases": counter_examples(60, seed=1),
        "ablation": ablation,
    }


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
    found = excess(norms_n, costs_n, p_n)
    assert product(norms_n, costs_n, p_n) == pytest.approx(1 + found, rel=1e-9)
    assert excess_of_factors(norms_n, costs_n, factors_n) == pytest.approx(found, rel=1e-9, abs=1e-9)
    assert found <= worst_excess(factors_n.max() / factors_n.min()) * (1 + 1e-9) + 1e-9
    best = cost_aware_sgd.optimal_cost_product(norms_n, costs_n)
    assert cost_aware_sgd.cost_product(norms_n, costs_n, p_n) / best == pytest.approx(1 + found, rel=1e-9)


def test_the_worst_case_is_attained_by_two_halves():
    # Two components of equal share q = ½, one overestimated four times: ½·5 · ½·(1/4 + 1) = 1.5625 = 1 + 9/16.
    assert excess_of_factors([1.0, 1.0], [1.0, 1.0], [4.0, 1.0]) == pytest.approx(9 / 16)
    assert worst_excess(4.0) == pytest.approx(9 / 16) and worst_excess(1.0) == 0


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
        (sampling, ([-1.0, 1.0], [1.0, 1.0]), r"signal is -1\.0"),
        (sampling, ([1.0, 1.0], [0.0, 1.0]), r"costs\[0\] is 0\.0"),
        (product, ([0.0, 0.0], [1.0, 1.0], [0.5, 0.5]), "every norm is zero"),
        (excess, ([1.0, 1.0], [1.0, 1.0], [0.5, 0.6]), r"probabilities sum to 1\.1"),
        (worst_excess, (0.5,), "at least 1"),
        (noise.noise_of, (1.5,), "at most 1"),
        (draw_instance, (5, 1.0, 1.0, 1.0, 2.0, 0), r"norm_low = 1\.0"),
    ],
)
def test_impossible_values_are_refused(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)


def test_noise_and_correlation_are_one_knob():
    assert noise.correlation(0.0) == 1 and noise.correlation(1.0) == pytest.approx(np.sqrt(0.5))
    assert noise.noise_of(noise.correlation([0.3, 2.0])) == pytest.approx([0.3, 2.0])
    rng = np.random.default_rng(0)
    norms_n = rng.uniform(1.0, 2.0, 200_000)
    for family in noise.NOISES.values():
        proxy_n = family.draw(rng, norms_n, 0.5 * norms_n.std(), 1)[0]
        assert np.corrcoef(norms_n, proxy_n)[0, 1] == pytest.approx(noise.correlation(0.5), abs=0.005)
        assert proxy_n.mean() == pytest.approx(norms_n.mean(), abs=0.003)


def test_theorem_d5_by_hand():
    # G = (1, 3), c = (1, 4): Var G = 1, Σ√c/G = 1 + 2/3, Σ G√c = 7.
    assert noise.taylor_excess([1.0, 3.0], [1.0, 4.0], 0.2) == pytest.approx(0.04 * (5 / 3) / 7)
    assert noise.most_symmetric_noise([1.0, 3.0]) == pytest.approx(1.0)


def test_the_exact_excess_is_the_mean_over_every_outcome():
    # ξ = ±σ for each of three components: E[1/w] − 1 = σ²/(G² − σ²), and eight outcomes.
    norms_n, costs_n, sd = np.array([1.0, 2.0, 1.5]), np.array([1.0, 9.0, 2.0]), 0.6
    outcomes = [norms_n + sd * np.array(signs) for signs in itertools.product((-1, 1), repeat=3)]
    mean = np.mean([excess(norms_n, costs_n, sampling(proxy_n, costs_n)) for proxy_n in outcomes])
    assert noise.expected_excess(norms_n, costs_n, sd**2 / (norms_n**2 - sd**2)) == pytest.approx(mean)


def test_lognormal_noise_is_what_d5_describes_less_its_own_term():
    norms_n, costs_n, level = np.array([1.0, 2.0, 1.5]), np.array([1.0, 9.0, 2.0]), 0.7
    sd = level * norms_n.std()
    exact = noise.expected_excess(norms_n, costs_n, noise.NOISES["lognormal"].inverse_excess(norms_n, sd))
    own = sd**2 * costs_n.sum() / (norms_n @ np.sqrt(costs_n)) ** 2
    assert exact == pytest.approx(noise.taylor_excess(norms_n, costs_n, sd) - own)


def test_uniform_noise_has_the_inverse_mean_of_its_integral():
    grid = (np.arange(200_000) + 0.5) / 100_000 - 1
    sd = 0.4
    expected = np.mean(1 / (1 + np.sqrt(3) * sd * grid)) - 1
    inverse_n = noise.NOISES["uniform"].inverse_excess(np.array([1.0, 0.5]), sd)
    assert inverse_n[0] == pytest.approx(expected, rel=1e-6) and inverse_n[1] == np.inf


def test_gaussian_noise_leaves_components_without_a_chance():
    norms_n, sd = np.array([0.5, 1.0]), 0.5
    assert noise.unreachable(norms_n, sd) == pytest.approx([0.158655, 0.022750], abs=1e-6)
    assert noise.some_unreachable(norms_n, sd) == pytest.approx(1 - 0.841345 * 0.977250, abs=1e-6)


def test_breaking_points_are_where_the_exact_form_says(checks):
    breaks = checks["breaks"].set_index("family")
    norms_n, costs_n = draw_instance(60, 0.2, 1.0, 1.0, 50.0, seed=1)
    level = breaks.loc["uniform", "noise"]
    inverse_n = noise.NOISES["uniform"].inverse_excess(norms_n, level * norms_n.std())
    ratio = noise.taylor_excess(norms_n, costs_n, level * norms_n.std()) / noise.expected_excess(
        norms_n, costs_n, inverse_n
    )
    assert ratio == pytest.approx(0.9, abs=0.005)
    assert noise.some_unreachable(norms_n, breaks.loc["gaussian", "noise"] * norms_n.std()) == pytest.approx(
        0.5, abs=0.01
    )
    assert breaks.loc["lognormal", "correlation"] == 0


def test_an_ablation_by_hand():
    # Half of 40 rollouts live. With little noise p is 1/20 there, smoothed by half 1/40 + 1/80: J = (1/20)/(3/80).
    batch = Batch(np.tile([1.0, 1.0, 0.0, 0.0], 10), np.full(40, 9.0))
    assert batch.uniform == pytest.approx(2.0)
    table = ablate(batch, beta=0.5, n_draws=500, seed=0)
    first, last = table.iloc[0], table.iloc[-1]
    assert first["smoothed"] == pytest.approx(4 / 3, rel=0.02) and first["unreachable"] == first["missing"] == 0
    # σ = 8·½ = 4: a live one is out of reach with Φ(−1/4), and E max(0, ξ) = 4φ(0) against Φ(1/4) + 4φ(1/4).
    assert last["unreachable_predicted"] == pytest.approx(0.4013, abs=1e-4)
    assert last["unreachable"] == last["missing"] == pytest.approx(0.4013, abs=0.02)
    assert last["silent_cost"] == pytest.approx(1.5958 / (1.5958 + 2.1455), abs=0.02)
    assert last["taylor"] == pytest.approx(1 + 16)
    with pytest.raises(ValueError, match="beta is 0"):
        ablate(batch, beta=0.0, n_draws=50, seed=0)


def test_the_break_even_lies_between_its_levels(checks):
    table = checks["ablation"]
    level = break_even(table)
    below, above = table[table["noise"] <= level], table[table["noise"] > level]
    assert (below["smoothed"] <= below["uniform"]).all() and above["smoothed"].iloc[0] > above["uniform"].iloc[0]
    assert break_even(table.assign(uniform=1e9)) == np.inf and break_even(table.assign(uniform=0.0)) == 0


def test_more_smoothing_costs_more_without_noise_and_stands_more_of_it():
    table = break_evens(draw_batch(16, 8, seed=2), n_draws=100, seed=0)
    assert (np.diff(table["clean"]) > 0).all() and (np.diff(table["noise"]) > 0).all()


def test_a_batch_has_standardised_groups():
    batch = draw_batch(50, 8, seed=0)
    groups_n_G = batch.sizes_N.reshape(50, 8)
    live_n = groups_n_G.any(axis=1)
    assert (groups_n_G[live_n] > 0).all() and 0.2 < live_n.mean() < 0.9
    assert (groups_n_G[live_n] ** 2).mean(axis=1) == pytest.approx(np.ones(live_n.sum()))


def test_verdicts_conclusion_and_files(checks, tmp_path):
    verdicts = judge(*(checks[name] for name in ("identity", "curves", "cases", "ablation")))
    assert verdicts[0]["holds"] and len({row["claim"] for row in verdicts}) == len(verdicts) >= 9
    text = conclude(*(checks[name] for name in ("breaks", "curves", "cases", "ablation")), verdicts)
    assert f"of {len(verdicts)} claims hold" in text
    for folder in ("first", "second"):
        save(tmp_path / folder, checks, verdicts)
    names = {path.name for path in (tmp_path / "first").iterdir()}
    assert names == {"verdict.json", *(f"{name}.parquet" for name in checks)}
    assert json.loads((tmp_path / "first/verdict.json").read_text()) == verdicts
    assert all((tmp_path / "first" / n).read_bytes() == (tmp_path / "second" / n).read_bytes() for n in names)
