"""A run's headlines, from its evaluations of each data source."""

import numpy as np
import pandas as pd

from repro.stats.tables import markdown

SOURCES = "sources"  # the table of these evaluations, written by repro.verl.record


def by_source(table: pd.DataFrame) -> list[dict[str, float]]:
    """accuracy, its standard error over questions, and the share solved at least once, of each data source; `table`:
    source, query, successes, tokens and truncated of every sample."""
    rows = []
    for source, of_it in table.groupby("source", sort=True):
        rate_Q = of_it.groupby("query")["successes"].mean()
        error = float(rate_Q.std(ddof=1) / np.sqrt(len(rate_Q))) if len(rate_Q) > 1 else float("nan")
        row = {"source": source, "questions": len(rate_Q), "samples": int(of_it["query"].value_counts().max())}
        row |= {"accuracy": float(rate_Q.mean()), "standard_error": error, "solved": float((rate_Q > 0).mean())}
        of_all = of_it.groupby("query")[["tokens", "truncated"]].mean().mean()
        rows.append({**row, "response_tokens": float(of_all["tokens"]), "truncated": float(of_all["truncated"])})
    return rows


def peaks(sources: pd.DataFrame) -> pd.DataFrame:
    """The papers' headlines from the table `sources`: of each seed and data source the peak accuracy and its step, and
    the tokens and FLOPs spent until then; of equal peaks the first."""
    first = sources.sort_values("step", kind="stable").groupby(["source", "seed"], sort=True)["accuracy"].idxmax()
    spent = ["generated_tokens", "trained_tokens", "paper_tokens", "flops"]
    columns = ["source", "seed", "step", "questions", "samples", "accuracy", "standard_error", *spent]
    return sources.loc[first].reindex(columns=columns).reset_index(drop=True)


def told(table: pd.DataFrame) -> str:
    """The table of `peaks` as Markdown."""
    return markdown(table, formats={"accuracy": ".3f", "standard_error": ".3f", "flops": ".2e"})
