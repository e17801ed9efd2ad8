"""The uniform plan: whole epochs, nothing lost at their seams, the budget to the rollout."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.plans.uniform import uniform


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 30), st.integers(2, 9), st.integers(0, 5))
@settings(deadline=None)
def test_every_epoch_visits_every_query_once(n_queries, groups, steps, size, seed):
    groups = min(groups, n_queries)
    plan = uniform(n_queries, groups * size, steps, np.random.default_rng(seed), group_size=size)
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
        plan = uniform(50, 80, 10, np.random.default_rng(seed))
        return [group.query for step in plan for group in step]

    first = visits(0)
    assert len(first) == 100 and first[:50] != first[50:] and first[:50] != sorted(first[:50])
    assert first == visits(0) != visits(1)


@pytest.mark.parametrize(("rollouts", "size"), [(10, 4), (3, 8), (0, 8)])
def test_a_budget_that_does_not_split_into_groups_is_refused(rollouts, size):
    with pytest.raises(ValueError, match=rf"{rollouts} rollouts a step cannot be split into groups of {size}"):
        uniform(100, rollouts, 5, np.random.default_rng(0), group_size=size)


def test_more_groups_than_queries_are_refused():
    with pytest.raises(ValueError, match="queries"):
        uniform(3, 32, 5, np.random.default_rng(0))  # four groups of eight a step
    assert len(uniform(4, 32, 5, np.random.default_rng(0))) == 5
