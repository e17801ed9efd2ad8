"""Samplers against their formulas: by hand, by enumeration of every draw, and by properties."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.methods.guard import MethodError
from repro.methods.rollouts import NoSignal, Rollouts
from repro.methods.samplers import apply_chain, effective_sample_size
from repro.methods.samplers.cost_aware import cost_aware, probabilities
from repro.methods.samplers.random_subset import random_subset


def batch(advantages_N, costs_N, response_tokens_N=None) -> Rollouts:
    """Rollouts of one group with the given advantages and costs; their prompts have a token if no response is given.
    All tokens are as surprising."""
    n, costs_N = len(advantages_N), np.asarray(costs_N)
    response_tokens_N = costs_N - 1 if response_tokens_N is None else response_tokens_N
    return Rollouts.from_batch(
        group_N=np.zeros(n, int),
        rewards_N=np.zeros(n),
        advantages_N=advantages_N,
        prompt_tokens_N=costs_N - response_tokens_N,
        response_tokens_N=response_tokens_N,
        logprob_N_T=np.full((n, response_tokens_N.max()), np.log(0.5)),
    )


HAND = batch([2.0, -1.0, 0.0, 3.0], [4, 16, 9, 36])  # |A|/√c = 1, 1/4, 0, 1/2, which sum to 7/4
HAND_P = [4 / 7, 1 / 7, 0.0, 2 / 7]


class FixedDraw:
    """Stands in for a generator: returns the rows it was told and records the distribution it was given."""

    def __init__(self, rows):
        self.rows = np.asarray(rows)

    def choice(self, n, size, p):
        self.n, self.size, self.p = n, size, p
        return self.rows


@st.composite
def batches(draw):
    """Two to seven rollouts, some without signal, at least one with."""
    n = draw(st.integers(2, 7))
    signal = st.one_of(st.just(0.0), st.floats(-4, 4).filter(lambda a: abs(a) > 1e-3))
    advantages_N = np.array(draw(st.lists(signal, min_size=n, max_size=n)))
    advantages_N[draw(st.integers(0, n - 1))] = draw(st.sampled_from([-1.5, 0.5]))
    return advantages_N, np.array(draw(st.lists(st.integers(2, 500), min_size=n, max_size=n)))


betas = st.sampled_from([0.0, 0.1, 0.5, 1.0])


def test_four_rollouts_by_hand():
    assert probabilities(HAND) == pytest.approx(HAND_P)
    # β = 0.2: 0.8 p + 0.05
    assert probabilities(HAND, 0.2) == pytest.approx([0.8 * 4 / 7 + 0.05, 0.8 / 7 + 0.05, 0.05, 1.6 / 7 + 0.05])
    assert probabilities(HAND, 1.0) == pytest.approx([0.25] * 4)


def test_weights_and_rows_by_hand():
    draw = FixedDraw([0, 3, 1, 0])
    drawn = cost_aware(HAND, 0.0, draw)
    assert (draw.n, draw.size) == (4, 4) and draw.p == pytest.approx(HAND_P)
    assert drawn.row_N.tolist() == [0, 3, 1, 0] and drawn.advantages_N.tolist() == [2.0, 3.0, -1.0, 2.0]
    # 1/(N p) over its expectation 3/4 is 1/(3 p), three of the four having p > 0
    assert drawn.weights_N == pytest.approx([7 / 12, 7 / 6, 7 / 3, 7 / 12])
    assert drawn.minibatches is None  # as many as the whole batch would get
    smoothed = cost_aware(HAND, 0.0, FixedDraw([2, 2, 2, 2]), beta=0.2)
    assert smoothed.weights_N == pytest.approx([1 / (4 * 0.05)] * 4)


@given(batches(), betas)
@settings(deadline=None)
def test_p_minimises_cost_times_second_moment_at_beta_zero(case, beta):
    """Theorem 4.1 with |A| for the gradient norm, over the rollouts that have one."""
    rollouts = batch(*case)
    norms_N, costs_N = np.abs(rollouts.advantages_N), rollouts.costs_N
    some = norms_N > 0

    def product(p_N):
        return (p_N @ costs_N) * (norms_N[some] ** 2 / p_N[some]).sum()

    best = (norms_N * np.sqrt(costs_N)).sum() ** 2
    assert product(probabilities(rollouts)) == pytest.approx(best)
    assert product(probabilities(rollouts, beta)) >= best * (1 - 1e-9)


def budget(rollouts: Rollouts) -> float:
    """N Σ p c, what a cost-aware draw of the batch costs in expectation."""
    return len(rollouts) * float(probabilities(rollouts) @ rollouts.costs_N)


def cheap_signal(rng, n: int) -> Rollouts:
    """A batch whose cost-aware draw costs clearly less than the batch: the long rollouts have little signal."""
    costs_N = rng.integers(5, 60, n)
    return batch(rng.choice([-1.0, 1.0], n) * 20 / costs_N, costs_N)


def test_a_random_subset_costs_what_cost_aware_draws_cost():
    rng = np.random.default_rng(4)
    rollouts = cheap_signal(rng, 256)
    target = budget(rollouts)
    assert target < 0.8 * rollouts.costs_N.sum()
    spent = [random_subset(rollouts, 0.0, rng).costs_N.sum() for _ in range(2000)]
    assert abs(np.mean(spent) - target) <= rollouts.costs_N.mean() / 2
    drawn = [cost_aware(rollouts, 0.0, rng).costs_N.sum() for _ in range(2000)]
    assert np.mean(drawn) == pytest.approx(target, rel=0.01)


def test_a_random_subset_has_no_repeats_unit_weights_and_uniform_inclusion():
    rng = np.random.default_rng(5)
    rollouts = cheap_signal(rng, 64)
    counts_N = np.zeros(64)
    for _ in range(4000):
        rows = (taken := random_subset(rollouts, 0.0, rng)).row_N
        assert len(set(rows)) == len(rows) and (taken.weights_N == 1).all() and taken.minibatches is None
        counts_N[rows] += 1
    share_N = counts_N / 4000
    error_N = np.sqrt(share_N * (1 - share_N) / 4000)
    assert (np.abs(share_N - share_N.mean()) < 4.5 * error_N).all()
    long = rollouts.costs_N > np.median(rollouts.costs_N)  # no preference for either length
    assert abs(share_N[long].mean() - share_N[~long].mean()) < 4 * 2 * error_N.mean() / np.sqrt(64)


def test_where_cost_aware_costs_more_than_the_batch_every_rollout_trains_and_the_rest_again():
    rng = np.random.default_rng(6)
    rollouts = batch([1.0, 0.0, 0.0, 0.0], [90, 5, 5, 5])  # the draw would cost 4 · 90, more than the batch has
    assert budget(rollouts) == pytest.approx(360)
    taken = [random_subset(rollouts, 0.0, rng) for _ in range(3000)]  # 360/26.25 = 13.7 rollouts: 3 each, 1.7 more
    times = np.array([np.bincount(part.row_N, minlength=4) for part in taken])
    assert set(times.ravel()) == {3, 4} and set(times.sum(1)) == {13, 14}
    assert np.mean([part.costs_N.sum() for part in taken]) == pytest.approx(360, rel=0.01)


def test_a_budget_below_one_rollout_is_kept_on_average():
    """Cost-aware draws four times the one cheap rollout: 40 tokens, where the mean rollout has 757."""
    rollouts = batch([1.0, 0.0, 0.0, 0.0], [10, 1006, 1006, 1006])
    spent = []
    for seed in range(4000):
        try:
            spent.append(random_subset(rollouts, 0.0, np.random.default_rng(seed)).costs_N.sum())
        except NoSignal:
            spent.append(0)
    assert np.mean(spent) == pytest.approx(40, abs=4 * np.std(spent) / np.sqrt(len(spent)))
    assert 0 < np.count_nonzero(spent) < 400


def test_samplers_chain_in_order():
    def drop_first(rollouts, progress, rng):
        return rollouts.take(np.arange(1, len(rollouts)), np.full(len(rollouts) - 1, 2.0))

    def keep_first(rollouts, progress, rng):
        return rollouts.take(np.array([0]), np.array([3.0 * progress]))

    left = apply_chain([drop_first, keep_first], HAND, 0.5, np.random.default_rng(0))
    assert left.row_N.tolist() == [1] and left.weights_N.tolist() == [3.0]
    left = apply_chain([], HAND, 0.5, np.random.default_rng(0))
    assert left.row_N.tolist() == [0, 1, 2, 3]
    # cost-aware on what a filter left: four draws become two, p over those two alone
    left = apply_chain([lambda r, *_: r.take(np.array([0, 1])), cost_aware], HAND, 0.0, np.random.default_rng(0))
    assert len(left) == 2 and set(left.row_N) <= {0, 1}
    assert left.weights_N == pytest.approx([{0: 1 / (2 * 0.8), 1: 1 / (2 * 0.2)}[row] for row in left.row_N])


def first_two_tokens_apart(rollouts, progress, rng):
    """Row 1 twice, its first token in one copy and its second in the other."""
    copies = rollouts.take(np.array([1, 1]))
    mask_2_T = np.zeros_like(copies.response_mask_N_T)
    mask_2_T[[0, 1], [0, 1]] = True
    return copies.with_mask(mask_2_T)


def whole_again(rollouts, progress, rng):
    return replace(rollouts, response_mask_N_T=HAND.response_mask_N_T[rollouts.row_N])


def dropped_again(rollouts, progress, rng):
    return HAND.take(np.array([1, 3]))


@pytest.mark.parametrize(
    ("chain", "said"),
    [
        (
            [lambda r, *_: r.take(np.array([0, 1])), dropped_again],
            "dropped_again .* batch of 4, or what an earlier sampler left",
        ),
        (
            [first_two_tokens_apart, whole_again],
            "whole_again selected tokens .* do not have, or no more",
        ),
    ],
)
def test_what_an_earlier_sampler_dropped_stays_dropped(chain, said):
    with pytest.raises(MethodError, match=f"sampler {said}"):
        apply_chain(chain, HAND, 0.0, np.random.default_rng(0))


def test_a_copy_may_have_the_tokens_of_another_and_a_few_rows_be_drawn_often():
    swapped = [first_two_tokens_apart, lambda r, *_: replace(r, response_mask_N_T=r.response_mask_N_T[::-1])]
    left = apply_chain(swapped, HAND, 0.0, np.random.default_rng(0))
    assert left.response_mask_N_T[:, :2].tolist() == [[False, True], [True, False]]
    often = [lambda r, *_: r.take(np.array([3])), lambda r, *_: r.take(np.zeros(400, int))]
    assert apply_chain(often, HAND, 0.0, np.random.default_rng(0)).row_N.tolist() == [3] * 400


def only_zero(rollouts, progress, rng):
    return rollouts.take(np.array([2]))


def nothing(rollouts, progress, rng):
    return rollouts.take(np.array([], int))


def tokens_of_the_silent(rollouts, progress, rng):
    """Masks every token of the rollouts that have an advantage."""
    return rollouts.with_mask((rollouts.advantages_N == 0)[:, None] & rollouts.response_mask_N_T)


@pytest.mark.parametrize("chain", [[only_zero], [nothing], [only_zero, cost_aware], [tokens_of_the_silent]])
def test_nothing_left_to_train_on_is_no_signal(chain):
    with pytest.raises(NoSignal):
        apply_chain(chain, HAND, 0.0, np.random.default_rng(0))


def test_effective_sample_size_by_hand():
    assert effective_sample_size(np.array([1.0, 1.0, 1.0])) == pytest.approx(3.0)
    assert effective_sample_size(np.array([3.0, 1.0])) == pytest.approx(16 / 10)
    assert effective_sample_size(np.array([6.0, 2.0])) == pytest.approx(16 / 10)
