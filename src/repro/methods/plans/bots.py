"""BOTS: a posterior of every query's success rate, which learns from the queries that are not drawn as well."""

from typing import Annotated

import numpy as np
from pydantic import Field

from repro.methods.plans import Queries
from repro.methods.plans.mopps import mopps

Share = Annotated[float, Field(ge=0, le=1)]
LASTING = 0.9  # of the ability, from batch to batch


class bots:
    """In each step the queries whose drawn success rates lie nearest to a target, as `mopps`; after each batch, of all:

        (a_q, b_q) ← (1 − λ) (a_q, b_q) + λ (1, 1) + (s_q, G − s_q)              q drawn, s_q of its G rollouts solved
        (a_q, b_q) ← (1 − λ) (a_q, b_q) + λ (1, 1) + ρ G (p̃_q, 1 − p̃_q)           q not drawn,
        p̃_q = clip(w_q + κ (t_q − w_q), 0, 1),   κ = Σ (p_q − w_q) / Σ (t_q − w_q) over the batch,

    with λ (`forget`) and ρ (`implicit`), and p_q the rates of the batch: p̃ interpolates between a weak and a strong
    model's rates w and t of each query, and κ, the policy's ability, is averaged over batches, 0.9 of it staying.

    Source: BOTS (Shen et al., 2025, arXiv:2510.26374), of which we have the abstract, and its public code in
    Trinity-RFT, whose target, λ, ρ and average these are. ValueError as `uniform`, or without a profile.
    Deviations: the weak model is the base policy, whose profile is charged, and the strong one solves all, t = 1, where
    the paper has two models measured beforehand; a batch is as many observed groups as fill a step; p is the mean
    training reward, clipped to [0, 1].

    >>> known = Queries(np.full(2, 8), np.array([2, 4]), np.array([8, 8]))
    >>> plan = bots(known, 4, np.random.default_rng(0), group_size=4, forget=0.5, implicit=0.5)
    >>> plan.observe(1, np.array([1.0, 1.0, 1.0, 0.0]), np.full(4, 20))
    >>> plan.counts_Q_2.round(3).tolist()  # κ = 1/2: of the other query, 5/8 of two rollouts
    [[2.25, 1.75], [4.0, 2.0]]
    """

    def __init__(
        self,
        queries: Queries,
        rollouts_per_step: int,
        rng: np.random.Generator,
        *,
        group_size: Annotated[int, Field(ge=2)] = 8,
        target: Annotated[float, Field(gt=0, lt=1)] = 0.5,
        forget: Share = 0.2,
        implicit: Share = 0.2,
    ):
        self.groups = queries.groups_per_step("bots", rollouts_per_step, group_size)
        self.rng, self.size, self.target, self.forget, self.implicit = rng, group_size, target, forget, implicit
        self.weak_Q, self.counts_Q_2 = queries.rate_Q, np.ones((len(queries), 2))  # a, b
        self.batch: dict[int, float] = {}
        self.seen, self.ability = 0, None

    __iter__ = mopps.__iter__

    def observe(self, query: int, rewards_G: np.ndarray, costs_G: np.ndarray) -> None:
        self.batch[query], self.seen = float(np.clip(rewards_G.mean(), 0, 1)), self.seen + 1
        if self.seen == self.groups:
            self._learn(np.array([*self.batch]), np.array([*self.batch.values()]))
            self.batch, self.seen = {}, 0

    def _learn(self, drawn_B: np.ndarray, rate_B: np.ndarray) -> None:
        weak_B = self.weak_Q[drawn_B]
        ability = (rate_B - weak_B).sum() / max((1 - weak_B).sum(), 1e-6)
        self.ability = ability if self.ability is None else LASTING * self.ability + (1 - LASTING) * ability
        rate_Q = np.clip(self.weak_Q + self.ability * (1 - self.weak_Q), 0, 1)
        rate_Q[drawn_B], count_Q = rate_B, np.full(len(rate_Q), self.implicit * self.size)
        count_Q[drawn_B] = self.size
        evidence_Q_2 = count_Q[:, None] * np.stack([rate_Q, 1 - rate_Q], 1)
        self.counts_Q_2 = (1 - self.forget) * self.counts_Q_2 + self.forget + evidence_Q_2
