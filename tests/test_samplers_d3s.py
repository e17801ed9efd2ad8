"""Subsets of rollouts and tokens: D³S and its parts, PODS, zero-variance filtering."""

import itertools
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.rollouts import NoSignal, Rollouts
from repro.methods.samplers.d1s import d1s
from repro.methods.samplers.d1s_c import d1s_c
from repro.methods.samplers.d2s import d2s
from repro.methods.samplers.d3s import d3s
from repro.methods.samplers.d3s_i import d3s_i
from repro.methods.samplers.pods import pods
from repro.methods.samplers.random_tokens import random_tokens
from repro.methods.samplers.top_tokens import kept_tokens, top_tokens
from repro.methods.samplers.zero_variance import zero_variance

RNG = np.random.default_rng(0)
SELECT = [d1s, d1s_c, d2s, d3s, d3s_i, pods]


def batch(rewards_N, group_N, tokens_N=None, entropy_N_T=None, advantages_N=None) -> Rollouts:
    """Rollouts with GRPO's advantages, unless others are given."""
    rewards_N = np.asarray(rewards_N, float)
    tokens_N = np.full(len(rewards_N), 3) if tokens_N is None else np.asarray(tokens_N)
    mask_N_T = np.arange(tokens_N.max()) < tokens_N[:, None]
    return Rollouts.from_batch(
        group_N=group_N,
        rewards_N=rewards_N,
        advantages_N=group_normalised(rewards_N, group_N) if advantages_N is None else advantages_N,
        prompt_tokens_N=np.ones(len(rewards_N), int),
        response_tokens_N=tokens_N,
        entropy_N_T=np.where(mask_N_T, 1.0, 0.0) if entropy_N_T is None else np.asarray(entropy_N_T, float),
    )


# Four groups of four: one success, all, three, none. A success alone has advantage √3, its failures −1/√3.
GROUPS = np.repeat([0, 1, 2, 3], 4)
MIXED = batch([0, 1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0, 0], GROUPS)


@st.composite
def batches(draw):
    """Groups of different sizes, binary or graded rewards, at least one group with a signal."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    reward = draw(st.sampled_from([st.integers(0, 1).map(float), st.floats(0, 1)]))
    rewards_N = [0.0, 1.0, *draw(st.lists(reward, min_size=sum(sizes), max_size=sum(sizes)))]
    order = draw(st.permutations(range(len(rewards_N))))
    group_N = np.repeat(np.arange(len(sizes) + 1), [2, *sizes])
    return batch(
        np.array(rewards_N)[order],
        group_N[order],
        draw(st.lists(st.integers(1, 4), min_size=len(order), max_size=len(order))),
    )


def test_d1s_by_hand():
    # group 0: the success and its first failure; 2: the first success and the failure; no signal: the first two
    assert d1s(MIXED, 0.0, RNG, share=0.5).row_N.tolist() == [0, 1, 4, 5, 8, 10, 12, 13]
    assert d1s(MIXED, 0.0, RNG).row_N.tolist() == [0, 1, 4, 5, 8, 10, 12, 13]  # a quarter of 4 is 1, at least 2
    assert d1s(MIXED, 0.0, RNG, share=1.0).row_N.tolist() == list(range(16))


def test_d1s_c_by_hand():
    # Eight of sixteen. Sorted: −√3, −1/√3 three times, 0 eight times, 1/√3 three times, √3: no zero is kept.
    taken = d1s_c(MIXED, 0.0, RNG, share=0.5)
    assert taken.row_N.tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    assert taken.advantages_N.tolist() == MIXED.advantages_N[taken.row_N].tolist()  # not normalised anew
    assert (taken.weights_N == 1).all() and taken.minibatches is None


def test_pods_by_hand():
    taken = pods(MIXED, 0.0, RNG, share=0.5, delta=0.0)
    assert taken.row_N.tolist() == [0, 1, 4, 5, 8, 10, 12, 13]
    assert taken.advantages_N.tolist() == [-1, 1, 0, 0, 1, -1, 0, 0]  # over the pair, where GRPO's were ±1/√3, ±√3
    odd = pods(batch([0, 0, 1, 1, 1, 0], np.zeros(6)), 0.0, RNG, share=0.5, delta=0.0)
    assert odd.row_N.tolist() == [0, 2, 3]  # two successes, one failure
    assert odd.advantages_N == pytest.approx([-np.sqrt(2), 1 / np.sqrt(2), 1 / np.sqrt(2)])


def test_pods_goes_by_rewards_and_d1s_by_advantages():
    case = batch([0.0, 1.0, 0.5, 0.2], np.zeros(4), advantages_N=[1.0, 1.5, -2.0, 3.0])
    assert pods(case, 0.0, RNG, share=0.5).row_N.tolist() == [0, 1]
    assert d1s(case, 0.0, RNG, share=0.5).row_N.tolist() == [2, 3]


@given(batches(), st.floats(0.05, 1.0))
@settings(deadline=None)
def test_subsets_have_the_largest_variance_and_pods_has_unit_variance(case, share):
    within, across, own = (sampler(case, 0.0, RNG, share=share) for sampler in (d1s, d1s_c, pods))
    assert len(within) == len(across) == len(own)
    assert np.var(across.advantages_N) >= np.var(within.advantages_N) - 1e-9
    for q in np.unique(case.group_N):
        group_A, kept_A = (r.advantages_N[r.group_N == q] for r in (case, within))
        best = max(np.var(subset) for subset in itertools.combinations(group_A, len(kept_A)))
        assert np.var(kept_A) == pytest.approx(best, rel=1e-9, abs=1e-12)
        if np.ptp(case.rewards_N[case.group_N == q]) > 1e-2:
            g, n = len(group_A), len(kept_A)
            assert np.var(kept_A) >= (n - 1) / n * g / (g - 1) - 1e-3  # Lemma 1 as it holds, up to the advantages' δ
            assert own.advantages_N[own.group_N == q].std() == pytest.approx(1.0, abs=1e-3)
            assert own.advantages_N[own.group_N == q].mean() == pytest.approx(0.0, abs=1e-9)


@given(batches(), st.randoms(), st.floats(0.1, 1.0))
@settings(deadline=None)
def test_the_order_of_rollouts_does_not_matter_beyond_ties(case, random, share):
    order = np.array(random.sample(range(len(case)), len(case)))
    for sampler, name in ((d1s, "advantages_N"), (d1s_c, "advantages_N"), (pods, "rewards_N")):
        first, second = (sampler(rollouts, 0.0, RNG, share=share) for rollouts in (case, case.take(order)))
        assert sorted(getattr(first, name)) == sorted(getattr(second, name))


@given(batches(), st.floats(0.05, 1.0))
@settings(deadline=None)
def test_the_scale_of_advantages_does_not_matter(case, share):
    scaled = batch(case.rewards_N, case.group_N, case.response_tokens_N, advantages_N=4.0 * case.advantages_N)
    for sampler in (d1s, d1s_c, d3s, d3s_i):
        assert sampler(scaled, 0.3, RNG).row_N.tolist() == sampler(case, 0.3, RNG).row_N.tolist()
    first, second = (top_tokens(rollouts, 0.0, RNG, tokens=share).response_mask_N_T for rollouts in (case, scaled))
    assert (first == second).all()


TOKENS = batch(
    [0, 0, 0],
    [0, 0, 0],
    tokens_N=[4, 2, 3],
    entropy_N_T=[[0.1, 0.9, 0.5, 0.3], [0.6, 0.2, 0.0, 0.0], [0.4, 0.4, 0.1, 0.0]],
    advantages_N=[1.0, -2.0, 0.5],
)  # keys .1 .9 .5 .3 | 1.2 .4 | .2 .2 .05


@pytest.mark.parametrize(
    ("tokens", "kept"),
    [
        (0.01, [(1, 0)]),  # at least one
        (0.3, [(0, 1), (0, 2), (1, 0)]),  # 2.7 of 9
        (0.66, [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (2, 0)]),  # of the tied pair the first
        (1.0, [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]),
    ],
)
def test_top_tokens_by_hand(tokens, kept):
    left = top_tokens(TOKENS, 0.0, RNG, tokens=tokens, least=0)
    assert list(zip(*map(np.ndarray.tolist, np.nonzero(left.response_mask_N_T)), strict=True)) == kept
    assert left.row_N.tolist() == [0, 1, 2] and left.costs_N.tolist() == [5, 3, 4]  # rollouts and costs stay


def test_top_tokens_ranks_only_tokens_that_still_count():
    masked = TOKENS.with_mask(np.array([[True, False, True, True], [False, True, True, True], [True] * 4]))
    left = top_tokens(masked, 0.0, RNG, tokens=2 / 7, least=0)  # keys .1 .5 .3 | .4 | .2 .2 .05
    assert list(zip(*map(np.ndarray.tolist, np.nonzero(left.response_mask_N_T)), strict=True)) == [(0, 2), (1, 1)]
    assert not (left.response_mask_N_T & ~masked.response_mask_N_T).any()


@pytest.mark.parametrize(("least", "kept"), [(0, 1), (1, 2), (2, 4), (3, 6), (4, 6)])
def test_at_least_some_tokens_for_each_rollout_with_an_advantage(least, kept):
    """Two of three rollouts have one, with 4 + 2 tokens; 5% of 9 is less than one token."""
    case = TOKENS.take([0, 1, 2])
    case.advantages_N[2] = 0.0
    left = top_tokens(case, 0.0, RNG, least=least)
    assert kept_tokens(case, 0.05, least) == left.response_mask_N_T.sum() == kept
    assert not left.response_mask_N_T[2].any()  # one ranking decides: the first tokens are those of rollouts 0 and 1
    assert kept_tokens(case, 1.0, least) == 9  # a larger share is not cut


def test_random_tokens_keeps_as_many_as_top_tokens_and_every_set_is_equally_likely():
    rng, times = np.random.default_rng(4), 6000
    counts = Counter()
    for _ in range(times):
        left = random_tokens(TOKENS, 0.0, rng, tokens=0.2, least=0)  # 2 of 9, whatever their keys
        assert left.row_N.tolist() == [0, 1, 2] and left.weights_N.tolist() == [1, 1, 1]
        counts[tuple(np.flatnonzero(left.response_mask_N_T).tolist())] += 1
    of_mask = np.flatnonzero(TOKENS.response_mask_N_T).tolist()
    assert set(counts) == set(itertools.combinations(of_mask, 2))
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3
    rollouts = wide_batch()
    for share, least in ((0.05, 4), (0.3, 0), (1.0, 4)):
        rows = d1s_c(rollouts, 0.0, rng)
        chosen = random_tokens(rows, 0.0, rng, tokens=share, least=least)
        known = top_tokens(rows, 0.0, rng, tokens=share, least=least)
        assert chosen.response_mask_N_T.sum() == known.response_mask_N_T.sum()
        assert not (chosen.response_mask_N_T & ~rows.response_mask_N_T).any()


def wide_batch(groups: int = 6, size: int = 8) -> Rollouts:
    rng = np.random.default_rng(1)
    tokens_N = rng.integers(2, 12, groups * size)
    group_N = np.repeat(np.arange(groups), size)
    entropy_N_T = rng.random((groups * size, tokens_N.max())) * (np.arange(tokens_N.max()) < tokens_N[:, None])
    return batch(rng.random(groups * size) < 0.5, group_N, tokens_N, entropy_N_T)


def test_d2s_is_d1s_c_then_tokens():
    rollouts = wide_batch()
    both = d2s(rollouts, 0.9, RNG, share=0.5, tokens=0.1, least=0)
    rows = d1s_c(rollouts, 0.9, RNG, share=0.5)
    assert both.row_N.tolist() == rows.row_N.tolist()
    assert both.response_mask_N_T.sum() == int(0.1 * rows.response_mask_N_T.sum() + 0.5)
    key_N_T = np.abs(rows.advantages_N)[:, None] * rows.entropy_N_T
    left_out = rows.response_mask_N_T & ~both.response_mask_N_T
    assert key_N_T[both.response_mask_N_T].min() >= key_N_T[left_out].max()


@pytest.mark.parametrize(("sampler", "rows"), [(d3s, d1s_c), (d3s_i, d1s)])
@pytest.mark.parametrize(("progress", "kept", "tokens"), [(0.0, 2, 0.05), (0.5, 5, 0.125), (1.0, 8, 0.2)])
@pytest.mark.parametrize("least", [0, 1, 4])
def test_the_schedule_of_d3s(sampler, rows, progress, kept, tokens, least):
    rollouts = wide_batch()
    left = sampler(rollouts, progress, RNG, least=least)
    assert len(left) == 6 * kept  # shares 0.25, 0.625, 1 of 8
    expected = top_tokens(rows(rollouts, 0.0, RNG, share=kept / 8), 0.0, RNG, tokens=tokens, least=least)
    assert left.row_N.tolist() == expected.row_N.tolist()
    assert (left.response_mask_N_T == expected.response_mask_N_T).all()
    if sampler is d3s_i:
        assert (np.bincount(left.group_N) == kept).all()


def test_zero_variance_goes_by_raw_rewards_exactly():
    assert zero_variance(MIXED, 0.0, RNG).row_N.tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    rewards_N = [0.1 + 0.2, 0.3, 0.7, 0.7, 1e9, 1e9 + 1e-6]  # the first pair differs by a rounding, the last by 10⁻⁶
    graded = batch(rewards_N, [2, 2, 1, 1, 0, 0], advantages_N=[0.0, 0.0, 5.0, 5.0, 0.0, 0.0])
    assert zero_variance(graded, 0.0, RNG).row_N.tolist() == [0, 1, 4, 5]  # whatever the advantages say
    apart = batch([1, 0, 1, 1], [7, 3, 3, 7])  # groups need not be contiguous
    assert zero_variance(apart, 0.0, RNG).row_N.tolist() == [1, 2]


@pytest.mark.parametrize("sampler", [*SELECT, zero_variance, top_tokens])
def test_a_batch_without_signal_is_no_signal(sampler):
    with pytest.raises(NoSignal):
        sampler(batch([1, 1, 0, 0], [0, 0, 1, 1]), 0.0, RNG)


def test_a_million_rollouts_in_seconds():
    rng = np.random.default_rng(2)
    rollouts = batch(rng.random(10**6) < 0.5, np.arange(10**6) // 8, rng.integers(1, 5, 10**6))
    for sampler in (d1s, d1s_c, d3s, pods, zero_variance):
        start = time.process_time()
        sampler(rollouts, 0.5, rng)
        assert time.process_time() - start < 5.0  # several times what it takes
