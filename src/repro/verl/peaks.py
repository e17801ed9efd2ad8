"""A run's headlines, from its evaluations of each data source."""

import pandas as pd

from repro.stats.tables import markdown

SOURCES = "sources"  # the table of these evaluations, written by repro.verl.record


def peaks(sources: pd.DataFrame) -> pd.DataFrame:
    """The papers' headlines from the table `sources`: of each seed and data source the peak accuracy and its step, and
    the tokens and FLOPs spent until then; of equal peaks the first."""
    first = sources.sort_values("step", kind="stable").groupby(["source", "seed"], sort=True)["accuracy"].idxmax()
    spent = ["generated_tokens", "trained_tokens", "paper_tokens", "flops"]
    columns = ["source", "seed", "step", "questions", "samples", "accuracy", "standard_error", *spent]
    return sources.loc[first, columns].reset_index(drop=True)


def told(table: pd.DataFrame) -> str:
    """The table of `peaks` as Markdown."""
    return markdown(table, formats={"accuracy": ".3f", "standard_error": ".3f", "flops": ".2e"})
