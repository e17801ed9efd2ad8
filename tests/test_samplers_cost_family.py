"""The cost-aware family: signals by hand, draws by enumeration, biases where they are expected."""

import itertools
import time

import numpy as np
import pytest
import test_samplers
from hypothesis import given, settings
from hypothesis import strategies as st
from test_samplers import batches

from repro.arms import bind
from repro.methods.rollouts import NoSignal, Rollouts
from repro.methods.samplers import apply_chain, effective_sample_size
from repro.methods.samplers.adaptive_beta import adaptive_beta
from repro.methods.samplers.cost_aware import cost_aware, probabilities
from repro.methods.samplers.length_only import length_only
from repro.methods.samplers.noisy_cost_aware import noisy_cost_aware
from repro.methods.samplers.surprise_cost_aware import surprise_cost_aware
from repro.methods.samplers.variance_optimal import variance_optimal
from repro.methods.selection.importance import beta_for_ess
from repro.settings import SettingsError

FAMILY = [cost_aware, length_only, variance_optimal, noisy_cost_aware, adaptive_beta, surprise_cost_aware]


def batch(advantages_N, costs_N) -> Rollouts:
    """Those of test_samplers.py, with responses of one token."""
    return test_samplers.batch(advantages_N, costs_N, np.ones(len(costs_N), int))


HAND = batch([2.0, -1.0, 0.0, 3.0], [4, 16, 9, 36])
SMALL = batch([2.0, -1.0, 0.5], [2, 3, 5])
SMALL_GRADIENTS = np.array([1.4, 2.0, -0.3])


class Scripted:
    """Stands in for a generator: deals the given rows in turn (then the likeliest) and the given noise; keeps p."""

    def __init__(self, rows=(), noise=0.0):
        self.rows, self.noise = list(rows), noise

    def choice(self, n, size, p):
        self.p = p
        dealt, self.rows = self.rows[:size], self.rows[size:]
        return np.array(dealt + [int(p.argmax())] * (size - len(dealt)))

    def standard_normal(self, size):
        return np.broadcast_to(self.noise, size)


def p_of(sampler, rollouts, **parameters) -> np.ndarray:
    """The distribution that a sampler draws from (its noise, if any, zero)."""
    sampler(rollouts, 0.0, rng := Scripted(), **parameters)
    return rng.p


def expectation(sampler, rollouts, gradients_N, draws: int, **parameters) -> tuple[float, float]:
    """(mean weighted gradient, tokens drawn) in expectation, by enumeration of every sequence of `draws` rows."""
    p_N = p_of(sampler, rollouts, **parameters)
    gradient = cost = 0.0
    for rows in itertools.product(np.flatnonzero(p_N), repeat=draws):
        drawn = sampler(rollouts, 0.0, Scripted(rows), **parameters)
        chance = p_N[list(rows)].prod()
        gradient += chance * (drawn.weights_N * gradients_N[drawn.row_N]).mean()
        cost += chance * drawn.costs_N.sum()
    return gradient, cost


def test_signals_by_hand():
    # 1/√c = 1/2, 1/4, 1/3, 1/6, which sum to 5/4
    assert p_of(length_only, HAND) == pytest.approx([0.4, 0.2, 4 / 15, 2 / 15])
    assert p_of(variance_optimal, HAND) == pytest.approx([1 / 3, 1 / 6, 0, 1 / 2])
    assert p_of(variance_optimal, HAND, beta=0.4) == pytest.approx([0.3, 0.2, 0.1, 0.4])
    assert p_of(cost_aware, HAND) == pytest.approx([4 / 7, 1 / 7, 0, 2 / 7])
    assert p_of(noisy_cost_aware, HAND, noise=3.0) == pytest.approx([4 / 7, 1 / 7, 0, 2 / 7])  # the noise dealt is 0


def test_noise_by_hand():
    # |A| = 2 1 0 3 has standard deviation √1.25; noise of 2, dealt ±1/√1.25, makes it 4 0 2 1
    unit = 1 / np.sqrt(1.25)
    rng = Scripted(noise=np.array([1, -1, 1, -1]) * unit)
    drawn = noisy_cost_aware(HAND, 0.0, rng, noise=2.0)
    signal = np.array([4 / 2, 0, 2 / 3, 1 / 6])  # −1 is clipped at 0
    assert rng.p == pytest.approx(signal / signal.sum())
    assert drawn.weights_N == pytest.approx(1 / (3 * rng.p[0])) and drawn.advantages_N.tolist() == [2.0] * 4
    with pytest.raises(NoSignal):
        noisy_cost_aware(HAND, 0.0, Scripted(noise=-9.0))
    flat = batch([1.0, -1.0], [4, 9])  # all |A| equal: no spread, no noise
    assert p_of(noisy_cost_aware, flat) == pytest.approx([0.6, 0.4])


def test_noise_sets_the_correlation_of_the_proxy():
    rng = np.random.default_rng(0)
    rollouts = batch(10 + rng.standard_normal(20_000), np.full(20_000, 4))  # far from the clip
    for noise in (0.5, 2.0):
        noisy_cost_aware(rollouts, 0.0, recorder := Recorder(1), noise=noise)
        assert np.corrcoef(recorder.p, rollouts.advantages_N)[0, 1] == pytest.approx(1 / np.hypot(1, noise), abs=0.02)


class Recorder:
    """A generator that keeps the last p."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.standard_normal = self.rng.standard_normal

    def choice(self, n, size, p):
        self.p = p
        return self.rng.choice(n, size=size, p=p)


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_by_default_cost_aware_draws_as_many_as_the_batch_and_recentres_by_the_constant(beta):
    drawn, p_N = cost_aware(HAND, 0.0, np.random.default_rng(5), beta=beta), probabilities(HAND, beta)
    rows = np.random.default_rng(5).choice(len(HAND), size=len(HAND), p=p_N)
    assert drawn.row_N.tolist() == rows.tolist()
    assert drawn.weights_N == pytest.approx(1 / (np.count_nonzero(p_N) * p_N[rows]))


@given(batches(), st.sampled_from(FAMILY), st.integers(2, 50), st.floats(0.01, 100), st.randoms())
@settings(deadline=None)
def test_p_sums_to_one_weights_average_one_and_neither_order_nor_units_matter(case, sampler, stretch, factor, random):
    advantages_N, costs_N = case
    rollouts = batch(advantages_N, costs_N)
    p_N = p_of(sampler, rollouts)
    assert p_N.sum() == pytest.approx(1.0) and (p_N >= 0).all()
    weights_N = np.array([sampler(rollouts, 0.0, Scripted([row])).weights_N[0] for row in np.flatnonzero(p_N)])
    assert p_N[p_N > 0] @ weights_N == pytest.approx(1.0)
    order = np.array(random.sample(range(len(costs_N)), len(costs_N)))
    tolerance = {"rel": 1e-5, "abs": 1e-7}  # β is found to 10⁻⁹
    assert p_of(sampler, batch(advantages_N[order], costs_N[order])) == pytest.approx(p_N[order], **tolerance)
    assert p_of(sampler, batch(advantages_N, stretch * costs_N)) == pytest.approx(p_N, **tolerance)
    assert p_of(sampler, batch(-factor * advantages_N, costs_N)) == pytest.approx(p_N, **tolerance)


@given(batches(), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_systematic_counts_are_the_expected_ones_rounded_down_or_up(case, beta, seed):
    rollouts = batch(*case)
    drawn = cost_aware(rollouts, 0.0, np.random.default_rng(seed), beta=beta, resampling="systematic")
    expected_N = len(rollouts) * probabilities(rollouts, beta)
    count_N = np.bincount(drawn.row_N, minlength=len(rollouts))
    assert len(drawn) == len(rollouts) and not count_N[expected_N == 0].any()
    assert (count_N > expected_N - 1 - 1e-9).all() and (count_N < expected_N + 1 + 1e-9).all()
    assert drawn.weights_N == pytest.approx(len(rollouts) / np.count_nonzero(expected_N) / expected_N[drawn.row_N])


class Shift:
    """Deals one number."""

    def __init__(self, shift):
        self.shift = shift

    def random(self):
        return self.shift


def test_systematic_draws_expect_n_p_and_so_the_same_gradient_with_less_variance():
    rollouts = batch([2.0, -1.0, 0.5, 0.0, 3.0], [2, 3, 5, 4, 30])
    gradients_N, p_N = np.array([1.4, 2.0, -0.3, 7.0, 0.2]), probabilities(rollouts)
    shifts = (np.arange(20_000) + 0.5) / 20_000  # the integral over the shift, by the midpoint rule
    drawn = [cost_aware(rollouts, 0.0, Shift(shift), resampling="systematic") for shift in shifts]
    counts_S_N = np.array([np.bincount(each.row_N, minlength=5) for each in drawn])
    assert counts_S_N.mean(0) == pytest.approx(5 * p_N, abs=1e-4)
    means_S = np.array([(each.weights_N * gradients_N[each.row_N]).mean() for each in drawn])
    assert means_S.mean() == pytest.approx(gradients_N[p_N > 0].sum() / 4, abs=1e-4)
    rng = np.random.default_rng(0)
    independent = [cost_aware(rollouts, 0.0, rng) for _ in range(4000)]
    spread = np.var([(each.weights_N * gradients_N[each.row_N]).mean() for each in independent])
    assert means_S.var() < 0.5 * spread
    last = cost_aware(rollouts, 0.0, Shift(1 - 2**-53), resampling="systematic")
    assert last.row_N[-1] == 4 and len(last) == 5


def test_uniform_with_replacement_is_beta_one():
    drawn = cost_aware(HAND, 0.0, rng := Scripted([2, 2, 0, 3]), beta=1.0)
    assert rng.p == pytest.approx([0.25] * 4) and drawn.weights_N == pytest.approx([1] * 4)
    assert drawn.row_N.tolist() == [2, 2, 0, 3]


def test_systematic_resampling_has_no_token_budget():
    with pytest.raises(ValueError, match="fixed number of draws: leave out `tokens`"):
        cost_aware(HAND, 0.0, np.random.default_rng(0), tokens=0.5, resampling="systematic")
    with pytest.raises(SettingsError):
        bind("arm", "samplers", "cost_aware", {"resampling": "stratified"})


@pytest.mark.parametrize("sampler", FAMILY)
def test_n_draws_are_unbiased_up_to_the_share_of_rollouts_with_a_chance(sampler):
    mean, _ = expectation(sampler, SMALL, SMALL_GRADIENTS, draws=3)
    assert mean == pytest.approx(SMALL_GRADIENTS.mean())
    gradients_N = np.array([0.7, -2.0, 0.0, 1.1])  # of HAND, whose third rollout has no advantage
    mean, _ = expectation(sampler, HAND, gradients_N, draws=4)
    assert mean == pytest.approx(gradients_N.sum() / np.count_nonzero(p_of(sampler, HAND)))


@pytest.mark.parametrize("sampler", FAMILY)
@pytest.mark.parametrize("tokens", [0.15, 0.5, 0.8])
def test_a_token_budget_keeps_the_direction_and_overshoots_by_less_than_one_rollout(sampler, tokens):
    budget = tokens * 10
    mean, cost = expectation(sampler, SMALL, SMALL_GRADIENTS, draws=4, tokens=tokens)
    assert mean == pytest.approx(SMALL_GRADIENTS.mean() * cost / budget)
    assert budget <= cost < budget + 5


def test_without_its_factor_a_token_budget_would_be_biased():
    """Draws that begin with an expensive rollout end early, which gives it more say in a plain mean."""

    def plain(rollouts, progress, rng, *, tokens):
        drawn = cost_aware(rollouts, progress, rng, tokens=tokens)
        return rollouts.take(drawn.row_N, 1 / (3 * rng.p[drawn.row_N]))

    mean, cost = expectation(plain, SMALL, np.array([0.0, 0.0, 3.0]), draws=4, tokens=0.8)
    assert mean > 1.1  # the dearest rollout alone has a gradient: its true mean is 1
    mean, _ = expectation(cost_aware, SMALL, np.array([0.0, 0.0, 3.0]), draws=4, tokens=0.8)
    assert mean * 8 / cost == pytest.approx(1.0)


@pytest.mark.parametrize("sampler", FAMILY)
def test_a_token_budget_is_spent_to_the_last_rollout(sampler):
    rng = np.random.default_rng(1)
    rollouts = batch(rng.standard_normal(200), rng.integers(5, 100, 200))
    for tokens in (0.001, 0.3, 2.0):
        for _ in range(20):
            drawn, budget = sampler(rollouts, 0.0, rng, tokens=tokens), tokens * rollouts.costs_N.sum()
            assert drawn.costs_N.sum() >= budget > drawn.costs_N[:-1].sum() and drawn.minibatches is None


def self_normalised_bias(copies: int) -> float:
    """Bias of the self-normalised mean with 2 · copies draws from a batch of that many copies of two rollouts."""
    pair, gradients = batch([2.0, 1.0], [4, 4]), np.array([3.0, 0.0])  # p = 2/3, 1/3 and the mean gradient 1.5
    rollouts = pair.take(np.tile([0, 1], copies))
    mean = 0.0
    for rows in itertools.product([0, 1], repeat=2 * copies):  # a copy is as good as another
        drawn = cost_aware(rollouts, 0.0, Scripted(rows), recentre="mean")
        assert drawn.weights_N.mean() == pytest.approx(1.0)
        chance = np.prod(np.array([2 / 3, 1 / 3])[list(rows)])
        mean += chance * (drawn.weights_N * gradients[drawn.row_N]).mean()
    return mean - 1.5


def test_self_normalised_weights_are_biased_by_one_over_the_number_of_draws():
    # Delta method, per draw: −(Cov(w, wg) − E[wg] Var w), with w = 3/4, 3/2 and wg = 9/4, 0
    leading = -(2 / 3 * 3 / 4 * 9 / 4 - 1.5 - 1.5 * (2 / 3 * 9 / 16 + 1 / 3 * 9 / 4 - 1))
    bias = {copies: 2 * copies * self_normalised_bias(copies) for copies in (1, 3, 6)}
    assert leading == pytest.approx(0.5625)
    assert abs(bias[6] - leading) < abs(bias[3] - leading) < 0.25 and bias[6] == pytest.approx(leading, rel=0.15)


def test_the_clip_on_noisy_proxies_costs_small_advantages_their_share():
    rng = np.random.default_rng(2)
    rollouts = batch([0.2, 3.0, 0.2, 3.0], [4, 4, 4, 4])
    gradients_N = np.array([1.0, 0.0, 1.0, 0.0])  # mean 0.5, all of it in the small advantages

    def mean(**parameters):
        draws = [noisy_cost_aware(rollouts, 0.0, rng, **parameters) for _ in range(3000)]
        estimates = [(drawn.weights_N * gradients_N[drawn.row_N]).mean() for drawn in draws]
        return np.mean(estimates), np.std(estimates) / np.sqrt(3000)

    biased, error = mean(noise=0.5)
    assert biased < 0.5 - 4 * error
    fair, error = mean(noise=0.5, beta=0.3)
    assert abs(fair - 0.5) < 4 * error


def test_adaptive_beta_reaches_its_target():
    rng = np.random.default_rng(3)
    rollouts = batch(rng.standard_normal(400), rng.integers(5, 200, 400))
    plain = np.mean([effective_sample_size(cost_aware(rollouts, 0.0, rng).weights_N) for _ in range(200)]) / 400
    assert plain < 0.4
    for target in (0.5, 0.8):
        drawn = [adaptive_beta(rollouts, 0.0, rng, target=target) for _ in range(200)]
        measured = np.mean([effective_sample_size(part.weights_N) for part in drawn]) / 400
        assert measured == pytest.approx(target, rel=0.03)


def test_adaptive_beta_at_its_ends():
    assert p_of(adaptive_beta, HAND, target=1.0) == pytest.approx([0.25] * 4)
    low = p_of(adaptive_beta, HAND, target=0.1)
    assert low == pytest.approx(probabilities(HAND)) and low[2] == 0  # reached without smoothing
    # The jump: a target just beyond what β = 0 has must serve the rollout without an advantage as well.
    share = 9 / (7 / 4 + 7 + 7 / 2)
    assert beta_for_ess(probabilities(HAND), share) == pytest.approx(0, abs=1e-12)
    assert beta_for_ess(probabilities(HAND), share + 1e-6) > 0.2


@pytest.mark.parametrize("sampler", FAMILY)
def test_no_advantage_is_no_signal(sampler):
    with pytest.raises(NoSignal):
        apply_chain([sampler], batch([0.0, 0.0], [3, 4]), 0.0, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("length_only", {"beta": 1.1}),
        ("variance_optimal", {"recentre": "median"}),
        ("noisy_cost_aware", {"noise": -0.1}),
        ("cost_aware", {"tokens": 0.0}),
        ("adaptive_beta", {"target": 0}),
        ("surprise_cost_aware", {"beta": 1.1}),
    ],
)
def test_impossible_parameters_are_refused(name, parameters):
    with pytest.raises(SettingsError):
        bind("arm", "samplers", name, parameters)
    assert bind("arm", "samplers", name, {"recentre": "mean", "tokens": 1}).keywords["tokens"] == 1


def test_a_million_rollouts_in_seconds():
    rng = np.random.default_rng(5)
    rollouts = batch(rng.standard_normal(10**6), rng.integers(2, 6, 10**6))
    for sampler in FAMILY:
        start = time.process_time()
        sampler(rollouts, 0.0, rng)
        assert time.process_time() - start < 8.0  # several times what it takes
