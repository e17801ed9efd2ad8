"""sGPO's plan: who is in an epoch, with how many rollouts, in which order; each part alone; nothing lost on the way."""

from fractions import Fraction
from itertools import islice, pairwise
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.methods.group_sizes.allocation import allocate_profile
from repro.methods.group_sizes.posterior import expected_informative, fit_population, posterior
from repro.methods.plans import PlanStream, Queries
from repro.methods.plans.sgpo import sgpo
from repro.methods.plans.sgpo_published import sgpo_published
from repro.methods.plans.uniform import uniform
from repro.methods.sgpo_rule import Rule

NO_FILTER = {"drop_trivial": False, "unsolvable_share": 1.0}
PARTS_OFF = {**NO_FILTER, "allocation": "equal", "curriculum": False}
SPREAD = np.repeat(np.arange(9), 4)  # four queries of each count of successes in 8


def profiled(successes_Q, samples: int = 8) -> Queries:
    return Queries(np.ones(len(successes_Q), int), np.asarray(successes_Q), np.full(len(successes_Q), samples))


def epochs(successes_Q, count: int, seed: int = 0, **parameters) -> list[list[tuple[int, int]]]:
    plan = sgpo(profiled(successes_Q), 64, np.random.default_rng(seed), **parameters)
    return [[(group.query, group.size) for group in plan.draw()] for _ in range(count)]


def uniform_epochs(n_queries: int, count: int, seed: int = 0) -> list[list[tuple[int, int]]]:
    plan = uniform(profiled([0] * n_queries), 64, np.random.default_rng(seed))
    return [[(group.query, group.size) for group in islice(plan, n_queries)] for _ in range(count)]


def test_group_sizes_by_hand():
    def sizes(**parameters):
        [epoch] = epochs(range(9), 1, **NO_FILTER, **parameters)
        return [size for _, size in sorted(epoch)]

    assert sizes() == [32, 8, 4, 3, 2, 2, 2, 2, 2]
    assert sizes(smallest=3, largest=5) == [5, 5, 4, 3, 3, 3, 3, 3, 3]
    assert sizes(allocation="equal", group_size=5) == [5] * 9
    assert sizes(unsolvable=6) == [6, 8, 4, 3, 2, 2, 2, 2, 2]
    assert sizes(unsolvable=6, allocation="shrunken")[1:] == sizes(allocation="shrunken")[1:]
    with pytest.raises(ValueError, match="unsolvable 6 has no meaning with allocation equal"):
        sizes(unsolvable=6, allocation="equal")
    with pytest.raises(ValueError, match="unsolvable 65 does not fit the 64 rollouts"):
        sizes(unsolvable=65)


pools = st.lists(st.integers(0, 8), min_size=1, max_size=40)
choices = st.fixed_dictionaries(
    {
        "drop_trivial": st.booleans(),
        "unsolvable_share": st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]),
        "allocation": st.sampled_from(["inverse", "equal", "shrunken", "informative"]),
        "curriculum": st.booleans(),
        "smallest": st.integers(2, 4),
        "largest": st.integers(4, 32),
    }
)


def plan_or_none(successes_Q, budget: int, seed: int, parameters):
    """None where the filter leaves no query, which is refused."""
    dropped = parameters["drop_trivial"] * successes_Q.count(8)
    dropped += successes_Q.count(0) * (parameters["unsolvable_share"] == 0)
    if dropped < len(successes_Q):
        return sgpo(profiled(successes_Q), budget, np.random.default_rng(seed), **parameters)
    with pytest.raises(ValueError, match=f"leaves none of {len(successes_Q)} queries"):
        sgpo(profiled(successes_Q), budget, np.random.default_rng(seed), **parameters)
    return None


@given(pools, choices, st.integers(0, 3))
@settings(deadline=None)
def test_an_epoch_has_whom_it_should_once_in_order_and_with_the_rule_s_size(successes_Q, parameters, seed):
    plan = plan_or_none(successes_Q, 64, seed, parameters)
    share, allocation = parameters["unsolvable_share"], parameters["allocation"]
    unsolvable = [query for query, successes in enumerate(successes_Q) if successes == 0]
    lots = max(round(share * len(unsolvable) + 1e-9), 1) if share and unsolvable else 0
    for epoch in [plan.draw(), plan.draw()] if plan else []:
        visited = [group.query for group in epoch]
        always = {q for q, s in enumerate(successes_Q) if 0 < s < 8 or (s == 8 and not parameters["drop_trivial"])}
        assert len(set(visited)) == len(visited)
        if allocation == "informative":  # it may leave out more, and never exceeds the rule's rollouts
            assert set(visited) <= always | set(unsolvable) and len(set(visited) & set(unsolvable)) <= lots
        else:
            assert set(visited) - set(unsolvable) == always and len(visited) == len(always) + lots
        rates = [successes_Q[query] for query in visited]
        assert not parameters["curriculum"] or rates == sorted(rates, reverse=True)
        low, high = parameters["smallest"], parameters["largest"]
        for group in epoch:
            successes = successes_Q[group.query]
            if allocation == "inverse":
                inverse = ceil(Fraction(8, successes)) if successes else high
                assert group.size == min(max(inverse, low), high)
            assert group.size == 8 if allocation == "equal" else low <= group.size <= high


@given(pools, choices, st.integers(32, 80), st.integers(1, 12))
@settings(deadline=None)
def test_steps_hold_the_stream_within_budget_as_full_as_order_allows_and_resume(
    successes_Q, parameters, budget, n_steps
):
    groups, stream, again = (plan_or_none(successes_Q, budget, 3, parameters) for _ in range(3))
    if groups is None:
        return
    stream, again = PlanStream(stream), PlanStream(again)
    steps = [stream.fill_step(budget) for _ in range(n_steps + 2)]
    assert [group for step in steps for group in step] == list(islice(groups, stream.taken))
    for step, after in pairwise(steps):
        used = sum(group.size for group in step)
        assert used <= budget < used + after[0].size
    again.skip(sum(len(step) for step in steps[:n_steps]))
    assert [again.fill_step(budget), again.fill_step(budget)] == steps[n_steps:]


def test_all_parts_off_is_uniform():
    assert epochs(SPREAD, 3, **PARTS_OFF) == uniform_epochs(len(SPREAD), 3)


def test_the_filter_alone_is_uniform_without_those_it_drops():
    found = epochs(SPREAD, 20, **{**PARTS_OFF, "drop_trivial": True, "unsolvable_share": 0.25})
    chosen = set()
    for epoch, whole in zip(found, uniform_epochs(len(SPREAD), 20), strict=True):
        [lot] = [query for query, _ in epoch if SPREAD[query] == 0]
        assert epoch == [(query, 8) for query, _ in whole if 0 < SPREAD[query] < 8 or query == lot]
        chosen.add(lot)
    assert chosen == {0, 1, 2, 3}  # drawn anew each epoch: nobody is out of reach


def test_the_allocation_alone_changes_sizes_and_no_query():
    rule = [32, 8, 4, 3, 2, 2, 2, 2, 2]
    for epoch, whole in zip(
        epochs(SPREAD, 2, **{**PARTS_OFF, "allocation": "inverse"}), uniform_epochs(len(SPREAD), 2), strict=True
    ):
        assert epoch == [(query, rule[SPREAD[query]]) for query, _ in whole]


def test_the_curriculum_alone_sorts_each_epoch_and_ties_keep_its_draw():
    found = epochs(SPREAD, 2, **{**PARTS_OFF, "curriculum": True})
    for epoch, whole in zip(found, uniform_epochs(len(SPREAD), 2), strict=True):
        assert epoch == [group for successes in range(8, -1, -1) for group in whole if SPREAD[group[0]] == successes]
    assert found[0] != found[1]


def test_shrunken_sizes_are_the_inverse_of_the_posterior_mean():
    alpha, beta = fit_population(SPREAD, 8)
    [epoch] = epochs(SPREAD, 1, **NO_FILTER, allocation="shrunken")
    assert {SPREAD[query]: size for query, size in epoch} == {
        successes: min(max(ceil((alpha + beta + 8) / (alpha + successes)), 2), 32) for successes in range(9)
    }


@pytest.mark.parametrize("allocation", ["inverse", "shrunken"])
def test_the_rule_of_the_reports_has_the_sizes_of_the_plan(allocation):
    [epoch] = epochs(SPREAD, 1, **NO_FILTER, allocation=allocation)
    sizes_Q = Rule.of({"allocation": allocation}).sizes(SPREAD / 8, 8)
    assert dict(epoch) == dict(enumerate(sizes_Q.tolist()))
    assert Rule.of({"allocation": allocation}).sizes([0.0, 0.1, 0.5]).tolist() == [32, 10, 2]  # known, not estimated


def test_informative_divides_the_rule_s_rollouts_among_the_same_queries_and_expects_more_signal():
    a_Q, b_Q = posterior(SPREAD, 8, *fit_population(SPREAD, 8))

    def expected(epoch):
        return sum(float(expected_informative(a_Q[query], b_Q[query], size)) for query, size in epoch)

    [rule], [best] = (epochs(SPREAD, 1, allocation=name) for name in ("shrunken", "informative"))
    assert {query for query, _ in best} <= {query for query, _ in rule}
    assert sum(size for _, size in best) == sum(size for _, size in rule) == 10 + 4 * (5 + 4 + 3 + 2 + 2 + 2 + 2)
    assert expected(best) > 1.15 * expected(rule)


def test_informative_fits_the_population_to_the_whole_profile():
    """Not to what the filter leaves, nor to a flat prior: either would divide these rollouts otherwise."""
    successes_Q = np.repeat([0, 1, 4, 7, 8], [24, 8, 2, 8, 24])
    kept_E = np.repeat([7, 4, 1, 0], [8, 2, 8, 6])  # an epoch in its order

    budget = sum(size for _, size in epochs(successes_Q, 1, allocation="shrunken")[0])

    def sizes(population):
        return allocate_profile(kept_E, 8, range(2, 33), budget, population=population).tolist()

    found = [size for _, size in epochs(successes_Q, 1, allocation="informative")[0]]
    assert found == sizes(fit_population(successes_Q, 8)) != sizes(fit_population(kept_E, 8))
    assert found != sizes((1.0, 1.0))


def test_informative_leaves_out_for_an_epoch_whom_its_rollouts_cannot_serve():
    """24 queries with p̂ = ½ and 48 rollouts: less than a posterior's three for each, so lots decide."""
    found = epochs(np.full(24, 4), 2, allocation="informative")
    assert all(sum(size for _, size in epoch) == 48 and len(epoch) < 24 for epoch in found)
    assert {query for query, _ in found[0]} != {query for query, _ in found[1]}


def test_what_cannot_be_planned_is_refused_in_a_sentence():
    def plan(queries, rollouts=64, **parameters):
        return sgpo(queries, rollouts, np.random.default_rng(0), **parameters)

    with pytest.raises(ValueError, match="needs a profile of the training queries"):
        plan(Queries(np.ones(3, int)))
    with pytest.raises(ValueError, match="largest 32 does not fit the 31 rollouts of a step"):
        plan(profiled([1]), 31)
    with pytest.raises(ValueError, match=r"leaves none of 3 queries \(2 trivial, 1 unsolvable\)"):
        plan(profiled([8, 8, 0]), unsolvable_share=0.0)
    uneven = Queries(np.ones(2, int), np.array([1, 2]), np.array([4, 8]))
    assert [group.size for group in plan(uneven).draw()] == [4, 4]


@pytest.mark.parametrize(
    ("successes_Q", "samples_Q", "said"),
    [
        ([1, 2], [8, 8], r"3 are trained on, .* shapes \(2,\) and \(2,\): profile every query"),
        ([1, 9, 3], [8, 8, 8], "query 1 has 9 successes in 8 samples"),
    ],
)
def test_a_profile_that_gives_no_success_rate_is_refused(successes_Q, samples_Q, said):
    with pytest.raises(ValueError, match=said):
        Queries(np.ones(3, int), successes_Q, samples_Q)


# As published


def published(successes_Q, count: int, seed: int = 0, **parameters) -> list[tuple[int, int]]:
    plan = sgpo_published(profiled(successes_Q), 64, np.random.default_rng(seed), **parameters)
    return [(group.query, group.size) for group in islice(plan, count)]


def test_three_clusters_in_sequence_with_a_fixed_tenth_of_the_unsolved_in_each():
    """Of 8 samples, 7 and 8 right are trivial; 3 to 6 have groups of 2, 2 of 4, 1 of 8. Of 20 unsolved queries 2."""
    successes_Q = np.repeat(np.arange(9), [20, 3, 2, 1, 1, 1, 1, 4, 4])
    clusters = {2: {25, 26, 27, 28}, 4: {23, 24}, 8: {20, 21, 22}}
    groups = published(successes_Q, 2 * (6 + 4) + 5 * 5, passes=2)
    assert [size for _, size in groups] == [2] * 12 + [4] * 8 + [8] * 25
    mixed_in = {query for query, _ in groups if query < 20}
    assert len(mixed_in) == 2
    passes = [groups[:6], groups[6:12], groups[12:16], groups[16:20], *(groups[at : at + 5] for at in range(20, 45, 5))]
    for own in passes:
        assert {query for query, _ in own} == clusters[own[0][1]] | mixed_in
    assert passes[0] != passes[1]  # an order of its own for every pass
    others = [{query for query, _ in published(successes_Q, 6, seed) if query < 20} for seed in range(1, 9)]
    assert any(other != mixed_in for other in others)


@given(st.floats(1e-6, 1))
@settings(deadline=None)
def test_the_group_size_is_the_power_of_two_below_the_inverse(rate):
    largest = 2 ** int(np.floor(np.log2(1 / rate)))
    queries = Queries(np.ones(1, int), np.array([rate]), np.ones(1))
    [group] = islice(sgpo_published(queries, 8, np.random.default_rng(0), trivial=1.0), 1)
    assert group.size == min(max(largest, 2), 8)


def test_a_cluster_without_queries_has_no_phase_and_what_cannot_be_planned_is_refused():
    assert sorted(published([0, 1, 8], 2)) == [(0, 8), (1, 8)]
    assert published([1, 6, 7], 3, trivial=0.7) == [(0, 8)] * 3
    assert {query for query, _ in published([0] * 9 + [4], 50, unsolved_share=0)} == {9}
    with pytest.raises(ValueError, match=r"none of 3 queries has a success rate above 0 and at most 0\.75"):
        published([0, 7, 8], 1)
    with pytest.raises(ValueError, match="a group of 8 does not fit the 4 rollouts of a step"):
        sgpo_published(profiled([1, 4]), 4, np.random.default_rng(0))
    with pytest.raises(ValueError, match="needs a profile"):
        sgpo_published(Queries(np.ones(3, int)), 64, np.random.default_rng(0))
