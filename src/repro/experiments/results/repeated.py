"""This machine's own runs against those in git: the same bits, or within a repetition's intervals?"""

from itertools import combinations

import pandas as pd

from repro.settings import Settings
from repro.stats.intervals import predicted
from repro.stats.runs import compared, last_of

REPEATED = "repeated.parquet"  # the table, in results/study


def repeated(own: pd.DataFrame, stored: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """One row per compared arm that both tables of evaluations have, but the baseline:

    arm, seeds, same_bits    runs, and how many of them have the curve in git to the last bit (of single precision)
    difference               final accuracy less the baseline's, paired by seed, mean over the runs made here
    stored, low, high        the same of those in git, and the prediction interval of a repetition with as many seeds
    inside                   whether `difference` lies in it
    """
    both = set(own["arm"]) & set(stored["arm"])
    arms = [arm for arm in compared(settings) if arm in both and arm != settings.baseline]
    bits = _same_bits(own, stored)
    here, there = (differences(table, settings.baseline) for table in (own, stored))
    rows = []
    for arm in arms:
        here_S, there_S = here.loc[arm].dropna(), there.loc[arm].dropna()
        mean, low, high = map(float, predicted(there_S.to_numpy(), len(here_S), settings.statistics.confidence))
        difference, same = float(here_S.mean()), bits[arm]
        inside = same.all() or low <= difference <= high
        row = {"arm": arm, "seeds": len(here_S), "same_bits": int(same.sum()), "difference": difference}
        rows.append({**row, "stored": mean, "low": low, "high": high, "inside": bool(inside)})
    return pd.DataFrame(rows)


def sentence(table: pd.DataFrame, confidence: float) -> str:
    """What the table says."""
    runs, same, inside = table["seeds"].sum(), table["same_bits"].sum(), table["inside"].sum()
    if same == runs:
        return f"All {runs} runs made here have the bits of those in git"
    return (
        f"{same} of {runs} runs made here have the bits of those in git; {inside} of {len(table)} differences from the "
        f"baseline lie inside the {confidence:.0%} prediction intervals of those in git"
    )


def crossed(first: pd.DataFrame, second: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """A row for every way to choose more than half of the first study's seeds: `seeds`, those chosen; `contained`, the
    share of their prediction intervals that contains the mean of the second's *other* seeds; the `rank correlation` of
    the two. Both: `differences`; the same study twice asks whether one half predicts the other."""
    rows = []
    for part in map(list, combinations(first.columns, (first.shape[1] + 1) // 2)):
        if rest := [seed for seed in second.columns if seed not in part]:
            mean, low, high = predicted(first[part].to_numpy(), len(rest), confidence)
            other = second[rest].mean(axis=1)
            order = pd.Series(mean, other.index).corr(other, "spearman")
            rows.append((part, other.between(low, high).mean(), order))
    return pd.DataFrame(rows, columns=["seeds", "contained", "rank correlation"])


def differences(evaluations: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Final accuracy less the baseline's: arms × seeds."""
    final = last_of(evaluations)["accuracy"].unstack("seed")
    return final - final.loc[baseline]


def _same_bits(own: pd.DataFrame, stored: pd.DataFrame) -> pd.Series:
    """(arm, seed) → whether the two curves are equal, of the runs made here."""
    measured = [name for name in stored if name in own and name not in ("arm", "seed")]
    stored = dict(iter(stored.groupby(["arm", "seed"])[measured]))
    same = {}
    for key, curve in own.groupby(["arm", "seed"])[measured]:
        there = stored.get(key)
        same[key] = there is not None and _single(curve).equals(_single(there))
    return pd.Series(same)


def _single(curve: pd.DataFrame) -> pd.DataFrame:
    exact = [name for name in curve if name.startswith("flops")]
    rounded = curve.drop(columns=exact).astype("float32")
    return pd.concat([rounded, curve[exact].astype("float64")], axis=1).reset_index(drop=True)
