"""Do the engines do alike? Steps within single precision; verl's curves within the scatter between seeds."""

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np
import pandas as pd

from repro.experiments.parity import ON_VERL
from repro.files import read_parquet
from repro.settings import Settings
from repro.stats.multiplicity import holm

ENGINES = {"embedded": "embedded engine", "verl": "verl"}  # trained to the end on both
TRAINERS = {"verl": "verl", "trl": "TRL"}  # whose first step is compared with the embedded engine's
TOLERANCE = 1e-4  # relative, of loss, gradient, optimiser in single precision; the same in tests/test_verl_engine.py
STEP_TOLERANCE = 1e-2  # of the step: Adam moves weights whose gradient is only rounding as far as any other
MEASURES = {
    "reward": "mean reward",
    "response_tokens": "response tokens",
    "truncated": "truncated responses",
    "groups_without_signal": "groups without signal",
    "entropy": "entropy (nats)",
    "selected_tokens": "tokens of selected rollouts",
    "effective_sample_size": "effective sample size of the weights",
    "gradient_norm": "gradient norm",
}


def both_engines(settings: Settings, of_embedded: Mapping[str, pd.DataFrame]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(evaluations, steps) of `parity.arms` on both engines, column `engine`. The start, which is common, is the
    embedded engine's on verl too. `of_embedded`: the embedded engine's tables, by name."""
    tables = {}
    for name in ("evaluations", "steps"):
        embedded = of_embedded[name]
        on_verl = read_parquet(ON_VERL / f"{name}.parquet", "dvc repro parity_train")
        if name == "evaluations":
            start = embedded[(embedded["step"] == 0) & embedded["seed"].isin(settings.parity.seeds)]
            on_verl = pd.concat([start, on_verl])
        parts = {"embedded": embedded, "verl": on_verl}
        tables[name] = pd.concat([part.assign(engine=engine) for engine, part in parts.items()], ignore_index=True)
    return tables["evaluations"], tables["steps"]


def batches_agree(batches: pd.DataFrame) -> pd.Series:
    """Of each row of `repro.experiments.parity.batch.compare_batches`: whether the choice is the same, weights,
    loss, gradients, and the optimiser's step of these gradients agree within TOLERANCE, and the step by the embedded
    engine's gradients within STEP_TOLERANCE."""
    same = batches[["same_plan", "same_verdicts", "same_finished", "same_rollouts"]].all(axis=1)
    exact = ["loss_difference", "gradient_error", "optimiser_error", "weight_difference"]
    close = (batches[exact] <= TOLERANCE).all(axis=1)
    close &= (batches["step_error"] <= STEP_TOLERANCE) & (batches["other_tokens"] == 0)
    return same & (close | (batches["selected"] == 0))  # without a signal there is no step to compare


def welch(embedded_S: np.ndarray, verl_S: np.ndarray, confidence: float) -> tuple[float, float]:
    """(difference of the means, verl's less the embedded engine's; half-width of Welch's interval for it, the distance
    that the scatter between seeds explains). NaN half-width for a single seed."""
    from scipy.special import stdtrit

    parts = [np.var(runs, ddof=1) / len(runs) if len(runs) > 1 else np.nan for runs in (embedded_S, verl_S)]
    difference, variance = float(np.mean(verl_S) - np.mean(embedded_S)), sum(parts)
    if not variance > 0:
        return difference, float(variance)  # 0 where no run differs from another, NaN where there is one
    freedom = variance**2 / sum(
        part**2 / (len(runs) - 1) for part, runs in zip(parts, (embedded_S, verl_S), strict=True)
    )
    return difference, float(stdtrit(freedom, (1 + confidence) / 2) * np.sqrt(variance))


def permutation_p(embedded_S_T: np.ndarray, verl_S_T: np.ndarray) -> float:
    """Exact permutation test of two sets of curves: over every assignment of the runs to two engines, the share whose
    largest difference of means, in standard deviations of all runs at that place, is at least the observed one.

    One test for the whole curve, however its places are correlated. Places where no run differs from
    another are left out; 1 where that is all of them.
    """
    runs_R_T = np.vstack([embedded_S_T, verl_S_T])
    scatter_T = runs_R_T.std(0)
    runs_R_T = (runs_R_T - runs_R_T.mean(0))[:, scatter_T > 0] / scatter_T[scatter_T > 0]
    if runs_R_T.shape[1] == 0:
        return 1.0
    n, first = len(runs_R_T), len(embedded_S_T)
    chosen_B_S = np.array(list(combinations(range(n), first)))  # row 0 is the observed one
    sums_B_T = runs_R_T[chosen_B_S].sum(1)
    statistic_B = np.abs(sums_B_T * (1 / first + 1 / (n - first))).max(1)  # all runs sum to 0
    return float((statistic_B >= statistic_B[0] * (1 - 1e-9)).mean())


def curves(evaluations: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """Of evaluations of both engines (column `engine`), a row per arm and step at which verl's policies were evaluated:
    means, difference, half-width, whether it lies within, and p_value of the arm's whole curve. The embedded engine's
    runs, evaluated at budgets, are read off there, linear between evaluations. The start, which is common, is left
    out."""
    rows = []
    for arm, tables in _by_arm(evaluations):
        trained = [table.groupby("seed")["step"].max().min() for table in tables]
        steps = [step for step in sorted(set(tables[1]["step"])) if 0 < step <= min(trained)]
        wide = [at_steps(table, steps) for table in tables]
        p_value = permutation_p(*(table[steps].to_numpy() for table in wide))
        for step in steps:
            runs = [table[step].to_numpy() for table in wide]
            rows.append({"arm": arm, "step": step, **_row(*runs, confidence), "p_value": p_value})
    return pd.DataFrame(rows)


def at_steps(evaluations: pd.DataFrame, steps: list[int]) -> pd.DataFrame:
    """Accuracy, seeds × `steps`, of the runs of one arm; linear between a run's evaluations."""
    runs = {seed: run.sort_values("step") for seed, run in evaluations.groupby("seed")}
    rows = {seed: np.interp(steps, run["step"], run["accuracy"]) for seed, run in runs.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=steps)


def during_training(steps: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """Of `steps` of both engines, a row per arm and measure, each run's mean over the steps that both have: as
    `curves`; p_value of the means, p_holm corrected for the measures of an arm."""
    rows = []
    for arm, tables in _by_arm(steps):
        of_arm, last = [], min(table["step"].max() for table in tables)
        tables = [table[table["step"] <= last] for table in tables]
        for measure in MEASURES:
            runs = [table.groupby("seed")[measure].mean().to_numpy() for table in tables]
            p_value = permutation_p(*(values[:, None] for values in runs))
            of_arm.append({"arm": arm, "measure": measure, **_row(*runs, confidence), "p_value": p_value})
        rows += [{**row, "p_holm": p} for row, p in zip(of_arm, holm([row["p_value"] for row in of_arm]), strict=True)]
    return pd.DataFrame(rows)


def _by_arm(table: pd.DataFrame) -> Iterator[tuple[str, list[pd.DataFrame]]]:
    """(arm, its rows of each engine in the order of ENGINES)."""
    for arm in dict.fromkeys(table["arm"]):
        of_arm = table[table["arm"] == arm]
        yield arm, [of_arm[of_arm["engine"] == engine] for engine in ENGINES]


def _row(embedded_S: np.ndarray, verl_S: np.ndarray, confidence: float) -> dict[str, float]:
    difference, half = welch(embedded_S, verl_S, confidence)
    means = {"embedded": float(np.mean(embedded_S)), "verl": float(np.mean(verl_S))}
    return {**means, "difference": difference, "half_width": half, "within": abs(difference) <= half}
