"""The metrics of an evaluation: per question, and over the questions of a data set."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from repro.evaluation.questions import Question
from repro.stats.pass_at_k import pass_at_k


def per_question(questions: Sequence[Question], responses: pd.DataFrame) -> pd.DataFrame:
    """One row per question, in order: samples, successes, truncated, response_tokens (mean), and the question itself.

    `responses`: the table of `run.evaluate`.
    """
    groups = responses.groupby("id", sort=False)
    table = pd.DataFrame(
        {
            "samples": groups.size(),
            "successes": groups["correct"].sum(),
            "truncated": groups["finished"].size() - groups["finished"].sum(),
            "response_tokens": groups["response_tokens"].mean(),
        }
    )
    columns = ("id", "data_source", "question", "answer")
    asked = pd.DataFrame([{name: getattr(question, name) for name in columns} for question in questions])
    return asked.join(table, on="id")


def powers_up_to(samples: int) -> list[int]:
    """The k of pass@k: powers of two, and the number of samples itself."""
    return sorted({2**power for power in range(samples.bit_length()) if 2**power <= samples} | {samples})


def summary(table: pd.DataFrame, ks: Sequence[int] | None = None) -> dict[str, Any]:
    """Means over the questions of `per_question`'s table, all with the same number n of samples.

    accuracy         avg@n: the mean fraction of correct responses, which is also pass@1
    standard_error   of the accuracy, over questions: n responses to one question are not n questions; None for one
    pass             {k: pass@k}, unbiased (`repro.stats.pass_at_k`); ks: powers of two up to n
    truncated        fraction of responses truncated at the maximum length
    response_tokens  mean length; tokens
    """
    n, successes_Q = int(table["samples"].iloc[0]), table["successes"].to_numpy()
    rates_Q = successes_Q / n
    error = float(rates_Q.std(ddof=1) / np.sqrt(len(rates_Q))) if len(rates_Q) > 1 else None
    return {
        "questions": len(table),
        "samples": n,
        "accuracy": float(rates_Q.mean()),
        "standard_error": error,
        "pass": {str(k): float(pass_at_k(successes_Q, n, k).mean()) for k in (ks or powers_up_to(n))},
        "truncated": float(table["truncated"].sum() / (n * len(table))),
        "response_tokens": float(table["response_tokens"].mean()),
    }
