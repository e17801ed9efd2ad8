"""Cost-aware sampling by advantage times surprise: the formula by hand, its properties, its draws by enumeration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.methods.rollouts import NoSignal, Rollouts
from repro.methods.samplers import apply_chain
from repro.methods.samplers.cost_aware import cost_aware, probabilities
from repro.methods.samplers.surprise_cost_aware import surprise_cost_aware


class Scripted:
    """Stands in for a generator: deals the given rows (then the likeliest) and keeps p."""

    def __init__(self, rows=()):
        self.rows = list(rows)

    def choice(self, n, size, p):
        self.p = p
        dealt, self.rows = self.rows[:size], self.rows[size:]
        return np.array(dealt + [int(p.argmax())] * (size - len(dealt)))


def batch(advantages_N, prompts_N, probabilities_N) -> Rollouts:
    """Rollouts whose tokens were drawn with the given probabilities, a list for each."""
    tokens_N = np.array([len(row) for row in probabilities_N])
    logprob_N_T = np.zeros((len(tokens_N), tokens_N.max()))
    for row, values in enumerate(probabilities_N):
        logprob_N_T[row, : len(values)] = np.log(values)
    return Rollouts.from_batch(
        group_N=np.zeros(len(tokens_N), int),
        rewards_N=np.zeros(len(tokens_N)),
        advantages_N=advantages_N,
        prompt_tokens_N=prompts_N,
        response_tokens_N=tokens_N,
        logprob_N_T=logprob_N_T,
    )


def p_of(rollouts, **parameters) -> np.ndarray:
    surprise_cost_aware(rollouts, 0.0, rng := Scripted(), **parameters)
    return rng.p


# (1 − π): 0.3 0.4 | 0.6 | 0.5 0.5 0.5 0.5 | none | 0.9; roots of their squares' sums 1/2, 0.6, 1, 0, 0.9
HAND = batch([2.0, -1.0, 3.0, -4.0, 0.0], [2, 8, 12, 2, 3], [[0.7, 0.6], [0.4], [0.5] * 4, [1.0, 1.0], [0.1]])
# |A| · norm / (T √c) = 2·0.5/(2·2), 0.6/(1·3), 3·1/(4·4), 0, 0
HAND_SIGNAL = np.array([0.25, 0.2, 0.1875, 0.0, 0.0])


def test_five_rollouts_by_hand():
    assert HAND.costs_N.tolist() == [4, 9, 16, 4, 4]
    assert p_of(HAND) == pytest.approx(HAND_SIGNAL / 0.6375)
    assert p_of(HAND, beta=0.4) == pytest.approx(0.6 * HAND_SIGNAL / 0.6375 + 0.08)
    drawn = surprise_cost_aware(HAND, 0.0, Scripted([2, 0, 0, 1, 2]))
    assert drawn.row_N.tolist() == [2, 0, 0, 1, 2] and drawn.minibatches is None
    assert drawn.weights_N == pytest.approx(0.6375 / (3 * HAND_SIGNAL[[2, 0, 0, 1, 2]]))
    assert drawn.advantages_N.tolist() == [3.0, 2.0, 2.0, -1.0, 3.0]


def test_only_tokens_that_count_surprise_and_the_length_stays_the_responses():
    mask_N_T = HAND.response_mask_N_T.copy()
    mask_N_T[0, 1] = mask_N_T[2, 1:] = False  # leaves 0.3 of the first, 0.5 of the third
    signal_N = [2 * 0.3 / (2 * 2), 0.2, 3 * 0.5 / (4 * 4), 0, 0]
    assert p_of(HAND.with_mask(mask_N_T)) == pytest.approx(signal_N / np.sum(signal_N))


def test_equal_surprise_on_one_token_is_plain_cost_aware():
    rollouts = batch([2.0, -1.0, 0.0, 3.0], [3, 15, 8, 35], [[0.25]] * 4)
    assert p_of(rollouts) == pytest.approx([4 / 7, 1 / 7, 0, 2 / 7])
    assert p_of(rollouts) == pytest.approx(probabilities(rollouts))
    first, second = (s(rollouts, 0.0, np.random.default_rng(5)).row_N for s in (surprise_cost_aware, cost_aware))
    assert first.tolist() == second.tolist()


@st.composite
def batches(draw):
    """(advantages, prompt lengths, token probabilities): at least one rollout with both advantage and surprise."""
    n = draw(st.integers(2, 6))
    signal = st.one_of(st.just(0.0), st.floats(-4, 4).filter(lambda a: abs(a) > 1e-3))
    advantages_N = draw(st.lists(signal, min_size=n, max_size=n))
    token = st.one_of(st.just(1.0), st.floats(0.01, 0.99))
    tokens_N = draw(st.lists(st.lists(token, min_size=1, max_size=5), min_size=n, max_size=n))
    where = draw(st.integers(0, n - 1))
    advantages_N[where], tokens_N[where][0] = -1.5, 0.5
    return advantages_N, draw(st.lists(st.integers(1, 300), min_size=n, max_size=n)), tokens_N


@given(batches(), st.sampled_from([0.0, 0.2, 1.0]), st.floats(0.01, 100), st.randoms())
@settings(deadline=None)
def test_p_sums_to_one_weights_average_one_and_neither_order_nor_units_matter(case, beta, factor, random):
    advantages_N, prompts_N, tokens_N = case
    rollouts = batch(*case)
    p_N = p_of(rollouts, beta=beta)
    assert p_N.sum() == pytest.approx(1.0) and (p_N >= beta / len(p_N) * (1 - 1e-12)).all()
    for row, p in enumerate(p_N):  # zero only without an advantage or without surprise
        assert (p > 0) == (beta > 0 or (advantages_N[row] != 0 and min(tokens_N[row]) < 1))
    chance = np.flatnonzero(p_N)
    weights_M = [surprise_cost_aware(rollouts, 0.0, Scripted([row]), beta=beta).weights_N[0] for row in chance]
    assert p_N[chance] @ weights_M == pytest.approx(1.0)
    order = random.sample(range(len(p_N)), len(p_N))
    shuffled = batch(*([part[row] for row in order] for part in case))
    assert p_of(shuffled, beta=beta) == pytest.approx(p_N[order])
    scaled = batch(-factor * np.array(advantages_N), prompts_N, tokens_N)
    assert p_of(scaled, beta=beta) == pytest.approx(p_N)


def test_neither_advantage_nor_surprise_is_no_signal():
    for rollouts in (batch([0.0, 0.0], [3, 4], [[0.5], [0.5]]), batch([1.0, -1.0], [3, 4], [[1.0], [1.0, 1.0]])):
        with pytest.raises(NoSignal):
            apply_chain([surprise_cost_aware], rollouts, 0.0, np.random.default_rng(0))


def test_near_certain_tokens_keep_their_digits():
    """1 − π of a token of probability 1 − 10⁻⁹ is 10⁻⁹, whatever float32 makes of 1 − 10⁻⁹."""
    rollouts = batch([1.0, 1.0], [1, 1], [[0.5], [0.5]])
    rollouts.logprob_N_T[:, 0] = [-1e-9, -3e-9]
    assert p_of(rollouts) == pytest.approx([0.25, 0.75], rel=1e-6)
