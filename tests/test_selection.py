"""Subsets of maximum variance against brute force, importance-weighted draws against enumeration, the schedule."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.methods.rollouts import NoSignal
from repro.methods.selection.importance import beta_for_ess, distribution, expected_ess_share, smoothed
from repro.methods.selection.max_variance import group_quotas, max_variance_rows
from repro.methods.selection.schedule import linear


def whole(values_N, keep: int) -> np.ndarray:
    """Rows of one subset of everything."""
    return max_variance_rows(values_N, np.zeros(len(values_N), int), np.array([keep]))


def largest_variance(values_N, keep: int) -> float:
    """By trying every subset."""
    return max(np.var(subset) for subset in itertools.combinations(values_N, keep))


values = st.one_of(st.integers(-2, 2).map(float), st.floats(-10, 10))  # the integers make ties
groups = st.lists(values, min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("values_N", "keep", "rows"),
    [
        ([0.0, 5.0, 1.0, -7.0, 2.0], 2, [1, 3]),
        ([0.0, 5.0, 1.0, -7.0, 2.0], 3, [1, 3, 4]),  # {−7, 2, 5} has variance 26, {−7, 0, 5} 24.2
        ([3.0, 3.0, 3.0, 3.0], 2, [0, 1]),  # all equal: the first
        ([1.0, -1.0, 1.0, -1.0, 1.0, -1.0], 4, [0, 1, 2, 3]),  # two of each, the first of each
        ([1.0, -1.0, 1.0, -1.0, 1.0, -1.0], 3, [0, 1, 2]),  # a tie of splits: more of the large ones
        ([-1.0, 1.0, -1.0, -1.0], 2, [0, 1]),
        ([0.0, 0.0, 9.0, 0.0], 1, [2]),
        ([4.0, 1.0, 2.0], 3, [0, 1, 2]),
    ],
)
def test_subsets_by_hand(values_N, keep, rows):
    assert whole(values_N, keep).tolist() == rows


def test_rounding_does_not_break_a_tie_of_splits():
    rng = np.random.default_rng(0)
    for scale, shift in zip(rng.lognormal(0, 3, 200), rng.normal(0, 1, 200), strict=True):
        values_N = (np.array([1.0, -1.0] * 3) + shift) * scale
        assert whole(values_N, 3).tolist() == [0, 1, 2]


@given(st.lists(groups, min_size=1, max_size=4), st.randoms())
@settings(deadline=None, max_examples=150)
def test_no_subset_of_any_group_has_more_variance(cases, random):
    keep_Q = [random.randint(1, len(case)) for case in cases]
    entries = [(value, 10 * q) for q, case in enumerate(cases) for value in case]
    random.shuffle(entries)
    values_N, group_N = map(np.array, zip(*entries, strict=True))
    rows = max_variance_rows(values_N, group_N, keep_Q)
    assert (np.diff(rows) > 0).all()
    for q, (case, keep) in enumerate(zip(cases, keep_Q, strict=True)):
        chosen = values_N[rows[group_N[rows] == 10 * q]]
        assert len(chosen) == keep
        assert np.var(chosen) == pytest.approx(largest_variance(case, keep), rel=1e-9, abs=1e-12)


@given(groups, st.integers(1, 8), st.randoms())
@settings(deadline=None)
def test_order_does_not_change_the_values_chosen_and_equal_ones_go_by_position(case, keep, random):
    values_N, keep = np.array(case), min(keep, len(case))
    rows = whole(values_N, keep)
    shuffled_N = np.array(random.sample(case, len(case)))
    assert np.sort(shuffled_N[whole(shuffled_N, keep)]).tolist() == np.sort(values_N[rows]).tolist()
    for value in np.unique(values_N):
        same = np.flatnonzero(values_N == value)
        chosen = np.intersect1d(same, rows)
        assert chosen.tolist() == same[: len(chosen)].tolist()


@given(st.lists(values, min_size=2, max_size=30).filter(lambda case: np.std(case) > 1e-3))
@settings(deadline=None)
def test_some_subset_of_every_size_has_at_least_the_sample_variance_of_the_whole(case):
    """D³S, Lemma 1, as it holds: with both variances dividing by n − 1."""
    values_N = (np.array(case) - np.mean(case)) / np.std(case, ddof=1)
    for keep in range(2, len(case) + 1):
        chosen = values_N[whole(values_N, keep)]
        assert np.var(chosen, ddof=1) >= 1 - 1e-9


@pytest.mark.parametrize(("half", "keep"), [(2, 3), (4, 3), (16, 9)])
def test_lemma_1_as_printed_fails_for_odd_sizes(half, keep):
    """Half of the group solved: advantages ±1, population variance 1. An odd subset has 1 − 1/n² at most."""
    values_N = np.array([-1.0, 1.0] * half)
    assert np.var(values_N) == 1.0
    assert np.var(values_N[whole(values_N, keep)]) == pytest.approx(1 - 1 / keep**2)
    if half == 2:
        assert largest_variance(values_N, keep) == pytest.approx(8 / 9)  # (n−1)/n · G/(G−1), the bound that holds


def test_quotas_are_rounded_shares_of_two_or_more():
    group_N = np.repeat([5, 3, 9, 7], [8, 1, 10, 3])  # groups in sorted order: sizes 1, 8, 3, 10
    assert group_quotas(group_N, 0.25).tolist() == [1, 2, 2, 3]
    assert group_quotas(group_N, 0.75).tolist() == [1, 6, 2, 8]
    assert group_quotas(group_N, 1.0).tolist() == [1, 8, 3, 10]
    assert group_quotas(np.zeros(32), 0.25).tolist() == [8]  # the paper's N_init


def test_the_schedule_is_a_line():
    assert [linear(p, 0.25, 1.0) for p in (0.0, 0.5, 1.0)] == [0.25, 0.625, 1.0]
    with pytest.raises(ValueError, match="between 0 and 1"):
        linear(1.5, 0.0, 1.0)


def test_distributions_by_hand():
    assert distribution(np.array([1.0, 0.0, 3.0, 4.0])).tolist() == [0.125, 0.0, 0.375, 0.5]
    assert distribution(np.array([1.0, 0.0, 3.0, 4.0]), 0.5) == pytest.approx([0.1875, 0.125, 0.3125, 0.375])
    with pytest.raises(NoSignal):
        distribution(np.zeros(3), 0.5)


def test_expected_effective_sample_size_by_hand():
    assert expected_ess_share(np.array([0.25] * 4)) == pytest.approx(1.0)
    assert expected_ess_share(np.array([0.2, 0.8])) == pytest.approx(4 / (5 + 1.25))
    assert expected_ess_share(np.array([0.2, 0.8, 0.0])) == pytest.approx(4 / (5 + 1.25))  # off the support: no weight


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=20), st.integers(0, 5), st.floats(0.01, 1.0))
@settings(deadline=None)
def test_beta_is_the_smallest_that_reaches_the_target(signal, silent, target):
    p_N = distribution(np.array(signal + [0.0] * silent))
    beta = beta_for_ess(p_N, target)
    share = expected_ess_share(smoothed(p_N, beta))
    assert 0 <= beta <= 1 and share >= target - 1e-12
    if beta > 1e-8:
        assert expected_ess_share(p_N) < target
        assert expected_ess_share(smoothed(p_N, beta - 2e-9)) < target + 1e-12
        assert share == pytest.approx(target, abs=1e-5)
    grid = [expected_ess_share(smoothed(p_N, b)) for b in np.linspace(0.01, 1, 25)]
    assert (np.diff(grid) >= -1e-12).all()
