"""Do the engines do alike? Steps within single precision; verl's curves within the scatter between seeds."""

import pandas as pd
from scipy.stats import ttest_ind

from repro.experiments.parity import ON_VERL
from repro.files import read_parquet

ENGINES = {"embedded": "embedded engine", "verl": "verl"}  # trained to the end on both
TOLERANCE = 1e-4  # relative, of loss, gradient, optimiser in single precision; the same in tests/test_verl_engine.py
STEP_TOLERANCE = 1e-2  # of the step: Adam moves weights whose gradient is only rounding as far as any other


def both_engines(embedded: pd.DataFrame) -> pd.DataFrame:
    """Evaluations of `parity.arms` on both engines, column `engine`: the embedded engine's, and verl's with the start,
    which is common."""
    on_verl = read_parquet(ON_VERL / "evaluations.parquet", "dvc repro parity_train")
    parts = {"embedded": embedded, "verl": pd.concat([embedded[embedded["step"] == 0], on_verl])}
    return pd.concat([part.assign(engine=engine) for engine, part in parts.items()], ignore_index=True)


def batches_agree(batches: pd.DataFrame) -> pd.Series:
    """Of each row of `repro.experiments.parity.batch.compare_batches`: whether the choice is the same, weights,
    loss, gradients, and the optimiser's step of these gradients agree within TOLERANCE, and the step by the embedded
    engine's gradients within STEP_TOLERANCE."""
    same = batches[["same_plan", "same_verdicts", "same_finished", "same_rollouts"]].all(axis=1)
    exact = ["loss_difference", "gradient_error", "optimiser_error", "weight_difference"]
    close = (batches[exact] <= TOLERANCE).all(axis=1)
    close &= (batches["step_error"] <= STEP_TOLERANCE) & (batches["other_tokens"] == 0)
    return same & (close | (batches["selected"] == 0))  # without a signal there is no step to compare


def curves(evaluations: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """Of evaluations of both engines (column `engine`), a row per arm and step after the start, which is common: means,
    difference (verl's less the embedded engine's), half-width of Welch's interval for it, the distance that the scatter
    between seeds explains, and whether it lies within."""
    rows = []
    for (arm, step), own in evaluations[evaluations["step"] > 0].groupby(["arm", "step"], sort=False):
        embedded, verl = (own.loc[own["engine"] == engine, "accuracy"] for engine in ENGINES)
        gap = ttest_ind(verl, embedded, equal_var=False).confidence_interval(confidence)
        means = {"embedded": embedded.mean(), "verl": verl.mean()}
        difference, half = means["verl"] - means["embedded"], (gap.high - gap.low) / 2
        within = difference == 0 or bool(abs(difference) <= half)  # half is NaN where no seed differs from another
        known = {"arm": arm, "step": step, **means}
        rows.append(known | {"difference": difference, "half_width": half, "within": within})
    return pd.DataFrame(rows)
