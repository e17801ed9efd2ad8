"""A run's headlines, from its evaluations of each data source."""

import pandas as pd

SOURCES = "sources"  # the table of these evaluations, written by repro.verl.record


def peaks(sources: pd.DataFrame) -> pd.DataFrame:
    """The papers' headlines from the table `sources`: of each seed and data source the peak accuracy and its step, and
    the tokens and FLOPs spent until then; of equal peaks the first."""
    first = sources.sort_values("step", kind="stable").groupby(["source", "seed"], sort=True)["accuracy"].idxmax()
    spent = ["generated_tokens", "trained_tokens", "paper_tokens", "flops"]
    columns = ["source", "seed", "step", "questions", "samples", "accuracy", "standard_error", *spent]
    return sources.loc[first, columns].reset_index(drop=True)
