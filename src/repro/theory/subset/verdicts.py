"""What the checks of subset selection come to: verdicts, the table of savings, and the conclusion in words."""

import numpy as np
import pandas as pd

from repro.theory import verdict
from repro.theory.sgd import Array, Measured
from repro.theory.subset.sgd import TIED, UNRELATED, savings
from repro.theory.subset.validation import CSIRIK, RULE

LOOSE, TIGHT = 1, -1  # horizons at which savings are compared; before the first there is nothing to interpolate
RATE_TOLERANCE, SAVING_TOLERANCE = 0.1, 0.2
COMPARED = 1e-9  # sums taken in different orders


def judge_choice(
    ratios: pd.DataFrame, sizes: pd.DataFrame, worst: pd.DataFrame, disagreement: float, seed: int
) -> list[dict]:
    """Verdicts on weights at a fixed bias budget, from compare_methods, compare_sizes, worst_cases and
    exact_disagreement of `repro.theory.subset.validation`."""
    both = pd.concat([ratios[["method", "ratio"]], worst[["method", "ratio"]]]).groupby("method")["ratio"].max()
    tight = worst[(worst["instance"] == "tight for 2") & (worst["method"] == CSIRIK)]["ratio"].iloc[0]
    growing = worst[(worst["instance"] == "three components") & (worst["method"] == RULE)].iloc[-1]
    excess = ratios[ratios["method"] == RULE]["excess"].max()
    return [
        verdict.at_most("least weight: dynamic programming against all sets", COMPARED, *_sure(disagreement)),
        verdict.at_most("appendix C: cheapest first weighs at most twice the least (worst)", 2.0, *_sure(both[RULE])),
        verdict.within(
            f"three components, M = {growing['size']:g}: cheapest first is M/2 times the least",
            growing["size"] / 2,
            *_sure(growing["ratio"]),
            0.05,
        ),
        verdict.at_most("Csirik et al. weighs at most twice the least (worst)", 2.0, *_sure(both[CSIRIK])),
        verdict.within("that factor is reached: the tight instance", 2.0, *_sure(tight), 0.01),
        verdict.at_most("cheapest first weighs at most the least + the heaviest component", 1.0, *_sure(excess)),
        verdict.within(
            "typical: k of (weight / LP − 1) ∝ n^−k, 95% quantile, independent instances",
            1.0,
            *_interval(_rate(sizes, seed)),
            RATE_TOLERANCE,
        ),
    ]


def judge_target(targets: pd.DataFrame) -> list[dict]:
    """Verdicts on what is best for a fixed target: the table of fixed_target."""
    by_kind = targets.groupby("kind")
    ratio, misfits = by_kind["ratio"].max(), by_kind["misfits"].sum()
    return [
        verdict.at_most(
            "fixed ε, convex: the best cost prefix is the best set (worst ratio)", 1 + COMPARED, *_sure(ratio["convex"])
        ),
        verdict.at_most(
            "fixed ε, convex: components against the rule c_i < cost of the run", 0.0, *_sure(misfits["convex"])
        ),
        verdict.at_least(
            "fixed ε, strongly convex: the best cost prefix can be 10% dearer (worst ratio)",
            1.1,
            *_sure(ratio["strongly convex"]),
        ),
    ]


def judge_training(
    measured: dict[tuple[str, str], Measured], bounds: pd.DataFrame, predicted: pd.DataFrame
) -> list[dict]:
    """Verdicts on the runs: subset_sgd's measure, error_bounds and predict. Budgets rise, the first is 0."""
    tightness_B = np.max([_tightness(key, m, bounds) for key, m in measured.items()], axis=0)
    partial = predicted[predicted["bias"] > 0]
    budgets = np.sort(predicted["budget"].unique())
    alike = partial[(partial["case"] == UNRELATED) & (partial["budget"] == budgets[1])]["saving_alike"].iloc[0]
    plain_B_M, tied_B_M = (savings(measured[case, "convex"])[:, 1] for case in (UNRELATED, TIED))
    final_B_S = measured[UNRELATED, "convex"].error_B_S_M[:, :, -1]
    horizons_M = measured[UNRELATED, "convex"].iterations_M
    loose, tight = (f"Fig. 6, budget {budgets[1]:.0%}, error at T = {horizons_M[m]}" for m in (LOOSE, TIGHT))
    floor_ratios = (
        ("DΔ", partial["floor"] / partial["bound"]),
        ("Δ²/(2μ), D.3", partial["floor"] / partial["bound_strong"]),
    )
    return [
        *(
            verdict.at_most(f"bias f(x_S) − f* ≤ {name} (largest ratio)", 1.0, *_sure(r.max()))
            for name, r in floor_ratios
        ),
        verdict.at_most("error bounds with bias hold (largest mean error / bound)", 1.0, *_interval(tightness_B)),
        verdict.at_least(f"{loose}: reached at less cost (saving)", 1.0, *_interval(plain_B_M[:, LOOSE])),
        verdict.within(
            f"{loose}: the saving is that of alike", alike, *_interval(plain_B_M[:, LOOSE]), SAVING_TOLERANCE
        ),
        verdict.at_least(f"{tight}: reached at less cost (saving)", 1.0, *_interval(plain_B_M[:, TIGHT])),
        verdict.at_most(f"{tight}: no saving where dear components differ", 1.0, *_interval(tied_B_M[:, TIGHT])),
        verdict.at_least(
            f"Fig. 6: at {budgets[-1]:.0%} the bias raises the final error (over all components')",
            1.0,
            *_interval(final_B_S[:, -1] / final_B_S[:, 0]),
        ),
    ]


def compare_savings(measured: dict[tuple[str, str], Measured], predicted: pd.DataFrame) -> pd.DataFrame:
    """Predicted and measured by case, kind and budget: saving, saving_alike, then loose and tight (the savings measured
    at an early and at the last horizon, each with _low and _high, 95%), and looseness (bound on the bias over it)."""
    frames = []
    for (case, kind), found in measured.items():
        rows = predicted[predicted["case"] == case].sort_values("budget").reset_index(drop=True)
        saved_B_S_M = savings(found)
        low_S_M, high_S_M = np.quantile(saved_B_S_M[1:], [0.025, 0.975], axis=0)
        columns = {"case": case, "kind": kind, "budget": rows["budget"]}
        columns |= {"saving": rows["saving"], "saving_alike": rows["saving_alike"]}
        for name, m in (("loose", LOOSE), ("tight", TIGHT)):
            columns |= {name: saved_B_S_M[0, :, m], f"{name}_low": low_S_M[:, m], f"{name}_high": high_S_M[:, m]}
        columns["looseness"] = rows["bound" if kind == "convex" else "bound_strong"] / rows["floor"]
        frames.append(pd.DataFrame(columns)[rows["bias"] > 0])
    return pd.concat(frames, ignore_index=True)


def conclude(
    ratios: pd.DataFrame, worst: pd.DataFrame, targets: pd.DataFrame, savings: pd.DataFrame, verdicts: list[dict]
) -> str:
    """What figures and tables show, in Markdown made from them."""
    at_random = ratios.groupby("method")["ratio"].agg(["median", "max"])
    extreme = worst.groupby("method")["ratio"].max()
    greedy = max(at_random.loc[CSIRIK, "max"], extreme[CSIRIK])
    convex = targets[targets["kind"] == "convex"]
    first = savings[(savings["kind"] == "convex") & (savings["budget"] == savings["budget"].min())].set_index("case")
    plain, tied = first.loc[UNRELATED], first.loc[TIED]
    loose = savings["looseness"]
    return (
        f"Cheapest first is no 2-approximation: it weighs **{extreme[RULE]:,.0f}×** the least on two components and up "
        f"to **{at_random.loc[RULE, 'max']:.1f}×** on random ones (median {at_random.loc[RULE, 'median']:.2f}×), "
        f"where the greedy of Csirik et al. stays within {greedy:.3f}×. "
        "For a given target error instead of a bias budget (convex case), the best run of cheapest components costs at "
        f"most {convex['ratio'].max():.3f}× what the best set does, and {convex['misfits'].sum()} components go "
        "against the rule that one is worth querying if a query of it costs less than the whole run. "
        f"In least squares the bounds exceed the bias {loose.min():.0f} to {loose.max():,.0f} times. Leaving out "
        f"{plain['budget']:.0%} of ΣG, dearest first, saves {plain['loose']:.2f}× ({plain['loose_low']:.2f} to "
        f"{plain['loose_high']:.2f}) at a loose target and {plain['tight']:.2f}× ({plain['tight_low']:.2f} to "
        f"{plain['tight_high']:.2f}) at the tightest, {tied['tight']:.2f}× where dear components differ; eq. 3 without "
        f"bias has {plain['saving']:.2f}×. "
        f"{verdict.tally(verdicts)}"
    )


def _tightness(key: tuple[str, str], measured: Measured, bounds: pd.DataFrame) -> Array:
    rows = bounds[(bounds["case"] == key[0]) & (bounds["kind"] == key[1])].sort_values(["budget", "iteration"])
    bound_S_M = rows["bound"].to_numpy().reshape(measured.error_B_S_M.shape[1:])
    return (measured.error_B_S_M / bound_S_M).max(axis=(1, 2))


def _rate(sizes: pd.DataFrame, seed: int, n_resamples: int = 1000) -> Array:
    """k of the 95% quantile of (at_most − 1) ∝ n^−k, the rule on independent instances; resampled, row 0 the whole."""
    rows = sizes[(sizes["family"] == "independent") & (sizes["method"] == RULE)]
    excess_N_K = rows.pivot(index="n", columns="instance", values="at_most") - 1
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(7,)))
    n_instances = excess_N_K.shape[1]
    drawn_B_K = np.vstack([np.arange(n_instances), rng.integers(n_instances, size=(n_resamples, n_instances))])
    high_N_B = np.quantile(excess_N_K.to_numpy()[:, drawn_B_K], 0.95, axis=-1)
    return -np.polyfit(np.log(excess_N_K.index), np.log(high_N_B), 1)[0]


def _interval(values_B: Array) -> tuple[float, tuple[float, float]]:
    """(estimate, 95% percentile interval) of a statistic whose row 0 is the whole sample."""
    low, high = np.quantile(values_B[1:], [0.025, 0.975])
    return float(values_B[0]), (float(low), float(high))


def _sure(value: float) -> tuple[float, tuple[float, float]]:
    """For what was computed over instances, not estimated from them: the interval is the value."""
    return float(value), (float(value), float(value))
