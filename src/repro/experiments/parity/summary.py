"""Do the engines do alike? Steps within single precision; verl's curves within the scatter between seeds."""

import numpy as np
import pandas as pd
from scipy.stats import ttest_ind

from repro.experiments.parity import ON_VERL
from repro.files import read_parquet
from repro.settings import Settings

ENGINES = {"embedded": "embedded engine", "verl": "verl"}  # trained to the end on both
TOLERANCE = 1e-4  # relative, of loss, gradient, optimiser in single precision; the same in tests/test_verl_engine.py
STEP_TOLERANCE = 1e-2  # of the step: Adam moves weights whose gradient is only rounding as far as any other


def both_engines(settings: Settings, embedded: pd.DataFrame) -> pd.DataFrame:
    """Evaluations of `parity.arms` on both engines, column `engine`: the embedded engine's, and verl's with the start,
    which is common."""
    start = embedded[(embedded["step"] == 0) & embedded["seed"].isin(settings.parity.seeds)]
    on_verl = read_parquet(ON_VERL / "evaluations.parquet", "dvc repro parity_train")
    parts = {"embedded": embedded, "verl": pd.concat([start, on_verl])}
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
    """Of evaluations of both engines (column `engine`), a row per arm and step at which verl's policies were evaluated:
    means, difference (verl's less the embedded engine's), half-width of Welch's interval for it, the distance that the
    scatter between seeds explains, and whether it lies within. The embedded engine's runs, evaluated at budgets, are
    read off there, linear between evaluations. The start, which is common, is left out."""
    rows = []
    for arm, of_arm in evaluations.groupby("arm", sort=False):
        tables = [of_arm[of_arm["engine"] == engine] for engine in ENGINES]
        trained = min(table.groupby("seed")["step"].max().min() for table in tables)
        steps = [step for step in sorted(set(tables[1]["step"])) if 0 < step <= trained]
        embedded, verl = (at_steps(table, steps) for table in tables)
        for step in steps:
            gap = ttest_ind(verl[step], embedded[step], equal_var=False).confidence_interval(confidence)
            means = {"embedded": embedded[step].mean(), "verl": verl[step].mean()}
            difference, half = means["verl"] - means["embedded"], (gap.high - gap.low) / 2
            within = difference == 0 or bool(abs(difference) <= half)  # half is NaN where no seed differs from another
            known = {"arm": arm, "step": step, **means}
            rows.append(known | {"difference": difference, "half_width": half, "within": within})
    return pd.DataFrame(rows)


def at_steps(evaluations: pd.DataFrame, steps: list[int]) -> pd.DataFrame:
    """Accuracy, seeds × `steps`, of the runs of one arm; linear between a run's evaluations."""
    runs = {seed: run.sort_values("step") for seed, run in evaluations.groupby("seed")}
    rows = {seed: np.interp(steps, run["step"], run["accuracy"]) for seed, run in runs.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=steps)
