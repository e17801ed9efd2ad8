"""Responses drawn by strata, in closed form: the policy is a Markov chain over four tokens."""

from itertools import product

import numpy as np
import pytest
import torch

from repro.engine.draws import Independent, Stratified

CPU, T = torch.device("cpu"), 3
CHAIN = (
    torch.tensor([[4, 0, 2, 2], [1, 5, 2, 0], [0, 2, 2, 4], [2, 2, 2, 2]]).double() / 8
)  # p of a token, given the last
PREFIXES = [prefix for t in range(1, T + 1) for prefix in product(range(4), repeat=t)]


def probability(prefix, chain) -> float:
    """Of a response that begins so, token 0 standing before it."""
    return float(np.prod([chain[last, token] for last, token in zip((0, *prefix), prefix, strict=False)]))


def counts(draws, k: int, q: int, chain=CHAIN) -> dict[tuple, np.ndarray]:
    """{prefix: how many of a query's K responses begin so, query by query}. Rows come in another order each time."""
    token_N_T, last_N = torch.zeros(k * q, T, dtype=torch.long), torch.zeros(k * q, dtype=torch.long)
    for t in range(T):
        alive_B = torch.randperm(k * q, generator=torch.Generator().manual_seed(t))
        last_N[alive_B] = draws.token(t, alive_B, chain[last_N[alive_B]])
        token_N_T[:, t] = last_N
    token_Q_K_T = token_N_T.reshape(q, k, T).numpy()
    return {prefix: (token_Q_K_T[..., : len(prefix)] == prefix).all(-1).sum(1) for prefix in PREFIXES}


def test_over_all_shifts_every_response_comes_as_often_as_its_probability():
    """Exactly: K = 4 strata at 256 shifts, evenly spaced, are a grid on which 1024 p is whole for each prefix."""
    draws = Stratified([4] * 256, T, CPU, torch.Generator())
    draws.u_N = (torch.arange(4) + (torch.arange(256).double()[:, None] + 0.5) / 256).flatten() / 4
    for prefix, count_Q in counts(draws, 4, 256).items():
        assert count_Q.sum() == 1024 * probability(prefix, CHAIN)


def test_strata_spread_responses_and_their_means_are_unbiased_with_less_variance():
    """Systematic sampling takes floor(K p) or ceil(K p) of K for every prefix, whose share then has the variance
    f (1 − f) / K², f being the fraction of K p; independent draws have p (1 − p) / K."""
    k, q, chain = 5, 4000, CHAIN ** torch.tensor([[1.7], [1.3], [0.6], [1.0]])
    chain /= chain.sum(1, keepdim=True)
    kinds = {"strata": Stratified, "independent": Independent}
    drawn = {kind: of([k] * q, T, CPU, torch.Generator().manual_seed(0)) for kind, of in kinds.items()}
    found = {kind: counts(draws, k, q, chain) for kind, draws in drawn.items()}
    for prefix in PREFIXES:
        p = probability(prefix, chain)
        f = k * p % 1
        variances = {"strata": f * (1 - f) / k**2, "independent": p * (1 - p) / k}
        assert (np.abs(found["strata"][prefix] - k * p) < 1).all() and variances["strata"] <= variances["independent"]
        for kind, variance in variances.items():
            share_Q = found[kind][prefix] / k
            assert abs(share_Q.mean() - p) <= 4 * (variance / q) ** 0.5
            assert p < 0.01 or share_Q.var() == pytest.approx(variance, rel=0.15)


def test_fresh_numbers_go_on_where_a_response_is_less_probable_than_two_to_the_minus_40():
    draws, both = Stratified([2], 2, CPU, torch.Generator().manual_seed(0)), torch.arange(2)
    draws.u_N[:] = 1.5 * 2.0**-43
    p_B = torch.tensor([2.0**-39, 2.0**-41], dtype=torch.float64)
    assert draws.token(0, both, torch.stack([p_B, 1 - p_B], 1)).tolist() == [0, 0]
    of_16 = draws.token(1, both, torch.full((2, 16), 1 / 16)).tolist()
    assert of_16 == [1, int(16 * draws.uniform_T_N[1, 1])] and of_16[1] != 6  # what is left of u: 1.5 / 16 and 6 / 16
