"""Simulated groups, profiles and plans, to hold against the closed forms of sGPO's group size.

Nothing here reuses a closed form: rewards are drawn one by one and normalised, a profile is drawn before its plan, and
the groups that a plan asks for are drawn with the p that the plan does not see.
"""

import numpy as np
import pandas as pd

from repro.methods.group_sizes.posterior import add_one_ratio, inverse_ratio, misfiled
from repro.methods.group_sizes.rule import Array
from repro.theory.group_size.closed_forms import best_advantage, informative, mean_advantage, one_success
from repro.theory.group_size.plans import Population, plans
from repro.theory.verdict import Interval

TRIED = (0.02, 0.1, 0.3, 0.5, 0.8, 0.95)  # success probabilities of the simulated groups and profiles
TRIED_SIZES = (2, 4, 8, 16, 32)
EXACT = {
    "informative": informative,
    "mean |A|": mean_advantage,
    "greatest A": best_advantage,
    "one success": one_success,
}
GAINS = ("informative", "advantage", "greatest")


def simulate_groups(n_groups: int, seed: int) -> pd.DataFrame:
    """Drawn rewards, normalised within the group: p, size, quantity (a key of EXACT), exact, simulated, error (SE)."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    rows = []
    for p in TRIED:
        for size in TRIED_SIZES:
            reward_N_G = rng.random((n_groups, size), dtype=np.float32) < p
            for quantity, value_N in _measure(reward_N_G).items():
                mean, error = value_N.mean(), _standard_error(value_N)
                row = {"p": p, "size": size, "quantity": quantity, "exact": float(EXACT[quantity](p, size))}
                rows.append(row | {"simulated": mean, "error": error})
    return pd.DataFrame(rows)


def simulate_profiles(population: Population, n_queries: int, margin: float, seed: int) -> pd.DataFrame:
    """Drawn profiles: quantity, p (NaN: over the population), exact, simulated, error (standard error)."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    K, rows = population.samples, []
    for p in TRIED:
        success_Q = rng.binomial(K, p, n_queries)
        solved_Q = success_Q[success_Q > 0]
        rows.append(("p/p̂, solved once", p, float(inverse_ratio(p, K)), p * K / solved_Q))
        rows.append(("p(K+1)/(s+1)", p, float(add_one_ratio(p, K)), p * (K + 1) / (success_Q + 1)))
    p_Q = rng.beta(population.alpha, population.beta, n_queries)
    success_Q = rng.binomial(K, p_Q)
    filed = {"trivial": success_Q == K, "unsolvable": success_Q == 0}
    filed["trivial_wrongly"] = filed["trivial"] & (p_Q < 1 - margin)
    filed["unsolvable_wrongly"] = filed["unsolvable"] & (p_Q > margin)
    exact = misfiled(K, population.alpha, population.beta, margin)
    rows += [(quantity, np.nan, exact[quantity], filed_Q.astype(float)) for quantity, filed_Q in filed.items()]
    columns = ("quantity", "p", "exact", "simulated", "error")
    return pd.DataFrame([(*row[:3], row[3].mean(), _standard_error(row[3])) for row in rows], columns=columns)


def simulate_plans(population: Population, n_queries: int, n_trials: int, seed: int) -> pd.DataFrame:
    """One pass over fresh queries, per trial and plan: trial, plan, rollouts, and sums of GAINS over the queries.

    Rollouts include the profile's, at its price and share of a pass. All plans of a trial see the same profile.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
    shape = (n_trials, n_queries)
    p_T_Q = rng.beta(population.alpha, population.beta, shape)
    profile_T_Q = rng.binomial(population.samples, p_T_Q)
    frames = []
    for name, plan in plans(population).items():
        kept_T_Q = rng.random(shape) < plan.kept_S[profile_T_Q]
        size_T_Q = np.where(kept_T_Q, plan.sizes_S[profile_T_Q], 0)
        success_T_Q = rng.binomial(size_T_Q, p_T_Q)
        failure_T_Q = size_T_Q - success_T_Q
        charge = n_queries * plan.profiled * population.samples * population.profile_price / population.passes
        informative_T_Q = (success_T_Q > 0) & (failure_T_Q > 0)
        sums = {
            "rollouts": size_T_Q.sum(axis=1) + charge,
            "informative": informative_T_Q.sum(axis=1),
            "advantage": (2 * np.sqrt(success_T_Q * failure_T_Q)).sum(axis=1),
            "greatest": (informative_T_Q * np.sqrt(failure_T_Q / np.maximum(success_T_Q, 1))).sum(axis=1),
        }
        frames.append(pd.DataFrame({"trial": np.arange(n_trials), "plan": name} | sums))
    return pd.concat(frames, ignore_index=True)


def saving(trials: pd.DataFrame, gain: str, plan: str, rival: str, seed: int) -> tuple[float, Interval]:
    """Rollouts per `gain` (one of GAINS) of `rival` over those of `plan`, and a 95% bootstrap interval.

    A ratio of sums over trials; trials are resampled, the same for both.
    """
    of_K = trials.set_index(["plan", "trial"])
    spent_2_K, gained_2_K = (
        np.stack([of_K.loc[name, column] for name in (plan, rival)]) for column in ("rollouts", gain)
    )
    n_trials = spent_2_K.shape[1]
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3,)))
    weights_B_K = np.vstack([np.ones(n_trials), rng.multinomial(n_trials, np.full(n_trials, 1 / n_trials), size=1000)])
    rate_B_2 = (weights_B_K @ gained_2_K.T) / (weights_B_K @ spent_2_K.T)
    ratio_B = rate_B_2[:, 0] / rate_B_2[:, 1]
    low, high = np.quantile(ratio_B[1:], [0.025, 0.975])
    return float(ratio_B[0]), (float(low), float(high))


def _measure(reward_N_G: np.ndarray) -> dict[str, Array]:
    """Per group, from its rewards alone: normalised by the population's standard deviation, and what EXACT names."""
    mean_N_1 = reward_N_G.mean(axis=1, keepdims=True)
    spread_N_1 = reward_N_G.std(axis=1, keepdims=True)
    advantage_N_G = np.where(spread_N_1 > 0, (reward_N_G - mean_N_1) / np.where(spread_N_1 > 0, spread_N_1, 1.0), 0.0)
    return {
        "informative": (reward_N_G.min(axis=1) != reward_N_G.max(axis=1)).astype(float),
        "mean |A|": np.abs(advantage_N_G).mean(axis=1),
        "greatest A": advantage_N_G.max(axis=1),
        "one success": (reward_N_G.sum(axis=1) == 1).astype(float),
    }


def _standard_error(value_N: Array) -> float:
    """As if one further value lay a unit off: a rare event that was never drawn has an error still."""
    n = len(value_N)
    return float(np.sqrt(((value_N - value_N.mean()) ** 2).sum() + 1.0) / n)
