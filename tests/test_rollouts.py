"""Rollouts: what is no batch is refused by name and place; rows, weights and masks compose."""

import pickle

import numpy as np
import pytest

from repro.methods.rollouts import NoSignal, NotMeasured, Rollouts

GOOD = dict(
    group_N=[0, 0, 1, 1],
    rewards_N=[1, 0, 1, 0],
    advantages_N=[1.0, -1.0, 0.5, -0.5],
    prompt_tokens_N=[2, 2, 3, 3],
    response_tokens_N=[1, 3, 2, 4],
)


def batch(**changes) -> Rollouts:
    return Rollouts.from_batch(**GOOD | changes)


def test_a_batch_has_costs_masks_and_unit_weights():
    rollouts = batch()
    assert len(rollouts) == 4
    assert rollouts.costs_N.tolist() == [3, 5, 5, 7]
    assert rollouts.weights_N.tolist() == [1, 1, 1, 1] and rollouts.row_N.tolist() == [0, 1, 2, 3]
    expected_N_T = [[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
    assert rollouts.response_mask_N_T.tolist() == np.array(expected_N_T, bool).tolist()
    assert rollouts.minibatches is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewards_N": [1, np.nan, 0, 0]}, r"rewards_N\[1\] is nan"),
        ({"advantages_N": [np.nan, -1, 1, -1]}, r"advantages_N\[0\] is nan"),
        ({"prompt_tokens_N": [2, 2, 0, 3]}, r"prompt_tokens_N\[2\] is 0"),
        ({"response_tokens_N": [1, 3, 2, 0]}, r"response_tokens_N\[3\] is 0"),
        ({"rewards_N": [1, 0, 1]}, r"'rewards_N': 3.*advantages_N with 4 rows"),
        ({"entropy_N_T": np.zeros((4, 9))}, r"entropy_N_T has shape \(4, 9\), response_mask_N_T \(4, 4\)"),
        ({"logprob_N_T": np.full((4, 4), -np.inf)}, "logprob_N_T holds a NaN or an infinity"),
        ({name: [] for name in GOOD}, "the batch is empty"),
    ],
)
def test_what_is_no_batch_is_refused_by_name_and_place(changes, message):
    with pytest.raises(ValueError, match=message) as refusal:
        batch(**changes)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["entropy_N"])
def test_a_misspelt_array_is_refused_and_not_dropped(name):
    with pytest.raises(TypeError, match=name):
        batch(**{name: np.ones((4, 4))})


def test_taking_rows_repeats_reorders_and_multiplies_weights():
    once = batch().take(np.array([3, 0, 0]), np.array([2.0, 0.5, 0.5]))
    assert once.row_N.tolist() == [3, 0, 0]
    assert once.advantages_N.tolist() == [-0.5, 1.0, 1.0] and once.costs_N.tolist() == [7, 3, 3]
    assert once.response_mask_N_T.sum(1).tolist() == [4, 1, 1]
    twice = once.take(np.array([2, 0]), np.array([3.0, 10.0]))
    assert twice.row_N.tolist() == [0, 3] and twice.weights_N.tolist() == [1.5, 20.0]
    assert twice.take(np.array([1])).weights_N.tolist() == [20.0]
    assert batch().take(np.array([1, 1])).weights_N.tolist() == [1.0, 1.0]


def test_token_arrays_follow_their_rows():
    entropy_N_T = np.arange(16.0).reshape(4, 4)
    taken = batch(entropy_N_T=entropy_N_T, logprob_N_T=-entropy_N_T).take(np.array([2, 0, 2]))
    assert taken.entropy_N_T.tolist() == entropy_N_T[[2, 0, 2]].tolist()
    assert taken.logprob_N_T.tolist() == (-entropy_N_T[[2, 0, 2]]).tolist()


@pytest.mark.parametrize(
    "read",
    [
        lambda values: values.sum(1),
        lambda values: values * np.ones((4, 4)),
        lambda values: np.ones((4, 4)) * values,
        lambda values: np.expm1(values),
        lambda values: values[0, 0],
        lambda values: -values,
        lambda values: np.asarray(values),
        lambda values: list(values),
        lambda values: values > 0,
        lambda values: values == 0,
        lambda values: values != 0,
        lambda values: 0.0 in [values],
        lambda values: float(values),
    ],
)
def test_what_was_not_measured_may_be_carried_but_not_read(read):
    carried = batch().take(np.array([0, 1, 1])).with_mask(np.ones((3, 4), bool))
    for name in ("entropy_N_T", "logprob_N_T"):
        with pytest.raises(NotMeasured, match=f"{name} was not measured"):
            read(getattr(carried, name))
    again = pickle.loads(pickle.dumps(carried))
    assert again.row_N.tolist() == [0, 1, 1] and not again.measured("entropy_N_T")
    for ask in (lambda: np.argsort(-again.entropy_N), again.mean_entropy):
        with pytest.raises(NotMeasured, match="entropy_N_T was not measured"):
            ask()


def test_minibatches_are_kept_along_a_chain_until_set_anew():
    first = batch().take(np.arange(4), minibatches=3)
    assert first.minibatches == 3
    assert first.take(np.array([1])).minibatches == 3 and first.take(np.array([1]), minibatches=1).minibatches == 1
    assert first.with_mask(first.response_mask_N_T).minibatches == 3


@pytest.mark.parametrize(
    ("weights_M", "message"), [([1.0, 0.0], r"weights_N\[1\] is 0"), ([-1.0, 1], r"\[0\] is -1"), ([1, np.nan], "nan")]
)
def test_a_weight_that_is_not_positive_is_refused(weights_M, message):
    with pytest.raises(ValueError, match=message):
        batch().take(np.array([0, 1]), np.array(weights_M))


@pytest.mark.parametrize("none", [np.array([], int), np.zeros(4, bool)], ids=["indices", "mask"])
def test_taking_nothing_is_no_signal(none):
    with pytest.raises(NoSignal, match="keep at least one"):
        batch().take(none)


def test_masks_only_narrow():
    first_token = np.zeros((4, 4), bool)
    first_token[:, 0] = True
    narrowed = batch().with_mask(first_token)
    assert narrowed.response_mask_N_T.sum(1).tolist() == [1, 1, 1, 1]
    widened = narrowed.with_mask(np.ones((4, 4), bool))
    assert widened.response_mask_N_T.tolist() == narrowed.response_mask_N_T.tolist()
    assert narrowed.costs_N.tolist() == batch().costs_N.tolist()  # the pass still reads the whole sequence
    assert batch().response_mask_N_T.sum() == 10  # the original is untouched


def test_a_sampler_cannot_spoil_the_batch_it_was_given():
    rollouts = batch()
    taken = rollouts.take(np.arange(4))
    taken.advantages_N[:] = 7.0
    taken.response_mask_N_T[:] = False
    assert rollouts.advantages_N.tolist() == [1.0, -1.0, 0.5, -0.5] and rollouts.response_mask_N_T.sum() == 10


def test_rollouts_show_themselves_as_readmes_picture():
    """A dot for each draw; a line of text without jinja2."""
    drawn = batch().take(np.array([3, 0, 0]))
    assert repr(drawn) == (
        "Rollouts: 3 draws of 2 rollouts in 2 groups, 3 with an advantage; mean reward 0.667, 4.33 tokens"
    )
    pytest.importorskip("jinja2", reason="jinja2 is missing: the extra `study` has it")
    html = drawn._repr_html_()
    assert html.startswith(f"<p>{drawn!r}</p><svg") and html.count("<circle") == 3
    assert "0, row 0" in html and "1, row 3" in html and 'data-advantage="-0.5"' in html
