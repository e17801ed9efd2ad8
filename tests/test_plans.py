"""Plans: whole epochs, nothing lost at their seams or at the steps', the budget to the rollout."""

from collections import Counter
from itertools import count, islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.methods.plans import PlannedGroup, PlanStream, Queries
from repro.methods.plans.uniform import uniform


def pool(n_queries: int) -> Queries:
    return Queries(np.ones(n_queries, int))


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 30), st.integers(2, 9), st.integers(0, 5))
@settings(deadline=None)
def test_every_epoch_visits_every_query_once(n_queries, groups, steps, size, seed):
    groups = min(groups, n_queries)
    stream = PlanStream(uniform(pool(n_queries), groups * size, np.random.default_rng(seed), group_size=size))
    plan = [stream.fill_step(groups * size) for _ in range(steps)]
    assert [sum(group.size for group in step) for step in plan] == [groups * size] * steps
    assert {group.size for step in plan for group in step} == {size}
    visits = [group.query for step in plan for group in step]
    for start in range(0, len(visits), n_queries):
        epoch = visits[start : start + n_queries]
        assert len(set(epoch)) == len(epoch) and set(epoch) <= set(range(n_queries))
    counts = Counter(visits)
    assert max(counts.values()) - min(counts[query] for query in range(n_queries)) <= 1


def test_epochs_have_orders_of_their_own_and_the_stream_decides_them():
    def visits(seed):
        return [group.query for group in islice(uniform(pool(50), 80, np.random.default_rng(seed)), 100)]

    first = visits(0)
    assert len(first) == 100 and first[:50] != first[50:] and first[:50] != sorted(first[:50])
    assert first == visits(0) != visits(1)


@pytest.mark.parametrize(("rollouts", "size"), [(10, 4), (3, 8), (0, 8)])
def test_a_budget_that_does_not_split_into_groups_is_refused(rollouts, size):
    with pytest.raises(ValueError, match=rf"{rollouts} rollouts a step cannot be split into groups of {size}"):
        uniform(pool(100), rollouts, np.random.default_rng(0), group_size=size)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=60), st.integers(8, 20))
def test_steps_of_unequal_groups_keep_order_and_budget(sizes, budget):
    groups = [PlannedGroup(query, size) for query, size in enumerate(sizes)]
    stream = PlanStream(iter([*groups, *(PlannedGroup(-1, 8) for _ in range(10))]))
    steps = []
    while stream.taken < len(groups):
        steps.append(stream.fill_step(budget))
        assert sum(group.size for group in steps[-1]) <= budget
    assert [group for step in steps for group in step][: len(groups)] == groups
    for step, after in pairwise(steps):  # no step stops before it must
        assert sum(group.size for group in step) + after[0].size > budget


def test_a_resumed_stream_goes_on_where_it_was():
    whole = PlanStream(PlannedGroup(query, 1 + query % 3) for query in count())
    steps = [whole.fill_step(7) for _ in range(6)]
    resumed = PlanStream(PlannedGroup(query, 1 + query % 3) for query in count())
    resumed.skip(sum(len(step) for step in steps[:4]))
    assert [resumed.fill_step(7), resumed.fill_step(7)] == steps[4:]


def test_a_group_larger_than_the_budget_is_refused():
    with pytest.raises(ValueError, match="a group of 9 rollouts does not fit a budget of 8"):
        PlanStream(iter([PlannedGroup(0, 9)])).fill_step(8)


def test_what_is_missing_is_taken_in_order_and_a_look_ahead_takes_nothing():
    """As a refill does: with every question of `fits` in between, the groups come as without."""
    stream = PlanStream(PlannedGroup(query, size) for query, size in enumerate([4, 4, 2, 4, 8, 2, 2, 2]))
    assert stream.fits(4) and not stream.fits(3) and stream.taken == 0
    assert [group.query for group in stream.fill_step(9)] == [0, 1] and not stream.fits(1)
    assert stream.fits(2) and [group.query for group in stream.fill_step(2)] == [2]
    assert stream.taken == 3 and not stream.fits(3)  # the look ahead at a fourth is not counted
    resumed = PlanStream(PlannedGroup(query, size) for query, size in enumerate([4, 4, 2, 4, 8, 2, 2, 2]))
    resumed.skip(stream.taken)
    for rest in (stream, resumed):
        assert [group.query for group in rest.fill_step(12)] == [3, 4]
        assert [group.query for group in rest.fill_step(4)] == [5, 6] and rest.taken == 7


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=4, max_size=40), st.integers(0, 5))
@settings(deadline=None)
def test_a_refilled_plan_is_the_plan(steps, seed):
    """Whatever a filter drops and however often it asks again, no group is lost and none comes twice."""
    stream, plain = (uniform(pool(7), 8, np.random.default_rng(seed), group_size=2) for _ in range(2))
    stream, taken = PlanStream(stream), []
    for missing, asks in steps:
        if asks:
            assert stream.fits(2 * missing) and not stream.fits(1)
        taken += stream.fill_step(2 * missing)
    assert taken == list(islice(plain, len(taken))) and stream.taken == len(taken)
