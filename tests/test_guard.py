"""Functions of others in an arm: each wrong one is a sentence with the arm, the step, the function and the cure."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from repro import arms
from repro.engine.update import silent_without_advantage
from repro.methods.guard import MethodError
from repro.methods.lengths import Lengths
from repro.methods.method import Method
from repro.methods.plans import PlannedGroup, Queries
from repro.methods.rollouts import Rollouts
from repro.settings import Arm, SettingsError, load

COUNTED = {
    "group_N": [0, 0, 1, 1],
    "rewards_N": [1, 0, 1, 0],
    "advantages_N": [1.0, -1.0, 0.5, -0.5],
    "prompt_tokens_N": [2, 2, 3, 3],
    "response_tokens_N": [1, 3, 2, 4],
}
BATCH = Rollouts.from_batch(**COUNTED, entropy_N_T=np.ones((4, 4)), logprob_N_T=-np.ones((4, 4)))
UNMEASURED = Rollouts.from_batch(**COUNTED)  # neither entropies nor log-probabilities


def method(**parts) -> Method:
    built = arms.build("mine", Arm(title="mine", about="", group="x"))
    return replace(built, **parts)


def select(sampler, batch=BATCH, seed=0):
    return method(samplers=[sampler]).select(3, batch, 0.5, np.random.default_rng(seed))


def raises(rollouts, progress, rng):
    return {}["share"]


def nothing(rollouts, progress, rng):
    return None


def nan_weights(rollouts, progress, rng):
    return rollouts.take([0, 1], [np.nan, 1.0])


def weights_afterwards(rollouts, progress, rng):
    taken = rollouts.take([0, 1])
    taken.weights_N[0] = np.nan
    return taken


def beyond(rollouts, progress, rng):
    return rollouts.take([9])


def rows_of_its_own(rollouts, progress, rng):
    return replace(rollouts, row_N=rollouts.row_N + 4)


def too_many(rollouts, progress, rng):
    return rollouts.take(np.zeros(401, int))


def other_lengths(rollouts, progress, rng):
    return replace(rollouts, response_tokens_N=rollouts.response_tokens_N + 1)


def half_a_step(rollouts, progress, rng):
    return rollouts.take([0, 1], minibatches=0.5)


def writes(rollouts, progress, rng):
    rollouts.advantages_N[:] = 0.0
    return rollouts


def replaces(rollouts, progress, rng):
    rollouts.weights_N = np.ones(4)
    return rollouts


@pytest.mark.parametrize(
    ("sampler", "parts"),
    [
        (raises, ["KeyError: 'share'", "in raises", "test_guard.py:"]),
        (nothing, ["returned NoneType", "should return Rollouts, by `take`"]),
        (nan_weights, ["weights_N[0] is nan", "finite"]),
        (weights_afterwards, ["weights_N[0] is nan", "finite"]),
        (beyond, ["IndexError", "index 9 is out of bounds"]),
        (rows_of_its_own, ["rows that the batch of 4 does not have", "`take`"]),
        (too_many, ["401 rows of a batch of 4", "at most 100 times"]),
        (other_lengths, ["changed response_tokens_N"]),
        (half_a_step, ["asks for 0.5 mini-batches", "whole number"]),
        (writes, ["read-only", "copy the array first"]),
        (replaces, ["cannot assign to field 'weights_N'"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_wrong_sampler_is_one_sentence(sampler, parts):
    before = {name: np.copy(values) for name, values in vars(BATCH).items()}
    with pytest.raises(MethodError) as error:
        select(sampler)
    sentence = str(error.value)
    assert sentence.startswith(f"arm mine, step 3: sampler {sampler.__name__}"), sentence
    assert all(part in sentence for part in parts) and "\n" not in sentence and len(sentence) < 400, sentence
    assert all(np.array_equal(before[name], values) for name, values in vars(BATCH).items())  # nothing was spoilt


@pytest.mark.parametrize("put", [replace, lambda batch, **arrays: vars(batch).update(arrays) or batch])
@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("row_N", list, "row_N should be a numpy array of 1 axis"),
        ("response_mask_N_T", lambda values: values.astype(float), "response_mask_N_T is of float64; it should be of"),
        ("entropy_N_T", lambda values: values.astype(str), "entropy_N_T holds"),
        ("group_weight_N", lambda values: -values, "group_weight_N[0] is -1.0; a cost and a weight must be above 0"),
    ],
)
def test_every_array_that_a_sampler_puts_in_is_held_to_its_form(put, name, change, said):
    """Whether it is put in by the class, which checks at once, or behind its back."""
    with pytest.raises(MethodError) as error:
        select(lambda rollouts, progress, rng: put(rollouts, **{name: change(vars(rollouts)[name])}))
    assert str(error.value).startswith("arm mine, step 3: sampler <lambda>") and said in str(error.value)


def test_what_a_sampler_reads_must_have_been_measured():
    def by_entropy(rollouts, progress, rng):
        return rollouts.take(np.argsort(rollouts.entropy_N_T.sum(1))[:2])

    assert select(by_entropy) is not None
    with pytest.raises(
        MethodError, match=r"arm mine, step 3: sampler by_entropy: NotMeasured: entropy_N_T was not meas"
    ):
        select(by_entropy, UNMEASURED)


def test_global_random_numbers_are_repeatable_and_leave_no_trace():
    def careless(rollouts, progress, rng):
        rng.random()
        drawn = [np.random.rand(), random.random(), float(torch.rand(()))]
        return rollouts.take([0, 1], [1 + drawn[0], 1 + drawn[1] + drawn[2]])

    np.random.seed(5), random.seed(5), torch.manual_seed(5)
    expected = np.random.rand(), random.random(), float(torch.rand(()))
    np.random.seed(5), random.seed(5), torch.manual_seed(5)
    first, second, other = (select(careless, seed=seed).weights_N.tolist() for seed in (0, 0, 1))
    assert first == second != other
    assert (np.random.rand(), random.random(), float(torch.rand(()))) == expected


def test_the_generator_of_an_arm_draws_what_it_drew_without_the_guard():
    def honest(rollouts, progress, rng):
        return rollouts.take(rng.choice(4, 4))

    assert select(honest).row_N.tolist() == np.random.default_rng(0).choice(4, 4).tolist()


def test_repeats_without_weights_count_as_often_as_they_are_there():
    taken = select(lambda rollouts, progress, rng: rollouts.take([0, 0, 0, 1]))
    assert taken.row_N.tolist() == [0, 0, 0, 1] and taken.weights_N.tolist() == [1.0] * 4


def test_a_selection_that_is_another_each_time_is_found_before_training():
    generator = np.random.default_rng()

    def unrepeatable(rollouts, progress, rng):
        return rollouts.take(generator.choice(len(rollouts), 8))

    settings = load(scale="smoke").with_arms({"mine": {"samplers": [unrepeatable]}})
    with pytest.raises(SettingsError, match=r"^arm mine: the same batch and generator give another selection"):
        arms.check(settings)


@pytest.mark.parametrize(
    ("parts", "ask", "said"),
    [
        ({"reward": lambda v, rng: v[:2]}, "rewards", "reward <lambda> returned array([1., 0.]); it should return 4"),
        ({"reward": lambda v, rng: v * np.nan}, "rewards", "returned nan at place 0; every entry must be a finite"),
        ({"advantage": lambda r, g: r / 0}, "advantages", "returned inf at place 0"),
        (
            {"filter": lambda r, g: [True]},
            "kept_groups",
            "filter <lambda> returned [True]; it should return one entry per group",
        ),
        ({"reward": lambda v, rng, lengths: np.add(v, 1, out=lengths.tokens_N)}, "rewards", "copy the array first"),
        ({"plan": lambda q, b, rng: iter([])}, "made_plan", "plan <lambda> ended after 0 groups"),
        ({"plan": lambda q, b, rng: iter([(0, 8)])}, "made_plan", "yields (0, 8); it should yield PlannedGroup"),
        ({"plan": lambda q, b, rng: iter([PlannedGroup(7, 8)])}, "made_plan", "queries are 0 to 3"),
        ({"plan": lambda q, b, rng: iter([PlannedGroup(0.5, 8)])}, "made_plan", "should be whole numbers"),
        (
            {"plan": lambda q, b, rng: iter([PlannedGroup(0, 17)])},
            "made_plan",
            "a group of 17, beyond the 16 rollouts of a step",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_the_other_parts_of_an_arm_are_held_to_their_word(parts, ask, said):
    rng, verdicts_N, group_N = np.random.default_rng(0), np.array([1.0, 0, 1, 0]), np.array([0, 0, 1, 1])
    lengths = Lengths(np.arange(1, 5), np.zeros(4, bool), 8)
    given = {
        "rewards": (verdicts_N, rng, lengths),
        "advantages": (verdicts_N, group_N, lengths),
        "kept_groups": (verdicts_N, group_N),
        "made_plan": (Queries(np.ones(4, int)), 16, rng),
    }
    with pytest.raises(MethodError) as error:
        made = getattr(method(**parts), ask)(5, *given[ask])
        made.fill_step(16)
    assert str(error.value).startswith("arm mine, step 5: ") and said in str(error.value), str(error.value)


def raising(logprob_N_T, old_logprob_N_T, advantages_N, mask_N_T):
    return logprob_N_T / {}["scale"]


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        (raising, "objective raising: KeyError: 'scale' (in raising,"),
        (lambda new, old, a, mask: (new.sum(1), mask), "it should return TokenLoss"),
        (lambda new, old, a, mask: (new * np.nan, mask), "returned a loss with a NaN or an infinity"),
    ],
)
def test_an_objective_is_tried_before_training(objective, said):
    with pytest.raises(MethodError) as error:
        silent_without_advantage(method(objective=objective))
    sentence = str(error.value)
    assert sentence.startswith("arm mine, step 0: objective ") and said in sentence and "\n" not in sentence
