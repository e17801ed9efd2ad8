"""The blind control of subset selection: exact sizes in every group, every subset equally likely."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.rollouts import NoSignal, Rollouts
from repro.methods.samplers import apply_chain
from repro.methods.samplers.d1s import d1s
from repro.methods.samplers.pods import pods
from repro.methods.samplers.random_quarter import random_quarter


def batch(group_N, rewards_N=None, tokens_N=None) -> Rollouts:
    n = len(group_N)
    rewards_N = np.arange(n) % 2 if rewards_N is None else np.asarray(rewards_N)
    return Rollouts.from_batch(
        group_N=group_N,
        rewards_N=rewards_N,
        advantages_N=group_normalised(rewards_N, group_N),
        prompt_tokens_N=np.ones(n, int),
        response_tokens_N=np.full(n, 3) if tokens_N is None else tokens_N,
    )


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.floats(0.05, 1.0), st.integers(0, 9))
@settings(deadline=None)
def test_every_group_keeps_as_many_as_d1s_and_pods(group_N, share, seed):
    rollouts = batch(10 - 2 * np.array(group_N))  # interleaved groups of any size, labels in no order
    taken = random_quarter(rollouts, 0.5, np.random.default_rng(seed), share=share)
    for group, size in Counter(rollouts.group_N.tolist()).items():
        assert (taken.group_N == group).sum() == min(size, max(2, int(share * size + 0.5)))
    assert len(set(taken.row_N)) == len(taken) and (np.diff(taken.row_N) > 0).all()
    assert (taken.weights_N == 1).all() and taken.minibatches is None
    assert taken.advantages_N.tolist() == rollouts.advantages_N[taken.row_N].tolist()  # those of the whole group
    for sampler in (d1s, pods):
        try:
            kept = sampler(rollouts, 0.5, np.random.default_rng(seed), share=share)
        except NoSignal:
            continue
        assert Counter(kept.group_N.tolist()) == Counter(taken.group_N.tolist())


def test_every_subset_is_equally_likely():
    rng, times = np.random.default_rng(0), 6000
    rollouts = batch([0] * 5 + [1] * 3, tokens_N=[1, 1, 1, 1, 90, 5, 50, 500])  # whatever the length
    counts = Counter(tuple(random_quarter(rollouts, 0.0, rng, share=0.4).row_N.tolist()) for _ in range(times))
    pairs = list(itertools.product(itertools.combinations(range(5), 2), itertools.combinations(range(5, 8), 2)))
    assert len(pairs) == 30 and set(counts) == {first + second for first, second in pairs}
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_a_draw_without_signal_is_skipped_and_one_with_is_not():
    silent, mixed = [1] * 8, [1] * 7 + [0]  # in a mixed group every rollout has an advantage
    with pytest.raises(NoSignal):
        apply_chain([random_quarter], batch([0] * 8, rewards_N=silent), 0.0, np.random.default_rng(0))
    left = apply_chain([random_quarter], batch([0] * 8 + [1] * 8, silent + mixed), 0.0, np.random.default_rng(0))
    assert Counter(left.group_N.tolist()) == {0: 2, 1: 2}
