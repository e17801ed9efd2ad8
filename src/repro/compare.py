"""Scores of your own runs, compared as this project compares its own."""

import pandas as pd

from repro.errors import Refused
from repro.stats import compare as of_panels

KEYS = ("policy", "arm", "seed")


def compare(scores: pd.DataFrame, baseline: str, *, confidence: float = 0.95, corrected: str = "holm") -> pd.DataFrame:
    """A row per measure and arm: its difference from `baseline`, over base policies and the seeds nested in them
    (repro.stats.nested), paired by both, with its interval; `adjusted`, p of no difference, corrected over the arms by
    "holm" or for their false discovery rate ("fdr"); answer: higher, lower or inconclusive; by_policy, the
    differences on each.

    `scores`: a row per run, with `arm`, `seed`, `policy` (the model it starts from; may be absent) and a column for
    each measure. Refused without two arms of two seeds.

    >>> scores = pd.DataFrame({"arm": ["grpo"] * 3 + ["mine"] * 3, "seed": [0, 1, 2] * 2,
    ...                        "accuracy": [0.50, 0.52, 0.51, 0.60, 0.63, 0.61]})
    >>> compare(scores, "grpo")[["arm", "difference", "answer"]].round(3).values.tolist()
    [['mine', 0.103, 'higher']]
    """
    table = scores if "policy" in scores else scores.assign(policy="the one")
    measures = [name for name in table if name not in KEYS]
    if not {"arm", "seed"} <= set(table) or not measures or baseline not in set(table["arm"]):
        raise Refused(f"scores need the columns arm and seed, a column of numbers, and rows of the arm {baseline!r}")
    arms = [arm for arm in dict.fromkeys(table["arm"]) if arm != baseline]
    if not arms or table.groupby("arm")["seed"].nunique().min() < 2:
        raise Refused("a comparison takes two arms, with two seeds each")
    return of_panels.differences(table, measures, arms, baseline, confidence, corrected=corrected)
