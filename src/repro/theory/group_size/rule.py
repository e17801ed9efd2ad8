"""Where G = ⌈1/p⌉ is right: by each criterion, the best group size and the share of its value that the rule attains."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from repro.methods.group_sizes.rule import Array, rule_size
from repro.theory.group_size.closed_forms import criteria, over_sizes

LARGEST = 200  # group sizes studied: 2 ... LARGEST, which holds 1/p for every p studied
# Shares of the best value from which on the rule counts as right or half right: ours, the paper gives none.
RIGHT, HALF = 0.95, 2 / 3
CLASSES = ("right", "half right", "wrong")
MARKS = (0.01, 0.1, 0.5, 0.9)  # success probabilities whose best sizes are told


def success_grid(n_probabilities: int = 81, least: float = 0.01) -> Array:
    """Success probabilities from `least` to 1 − `least`, evenly spaced on the logit scale, and MARKS."""
    return np.union1d(np.round(expit(np.linspace(logit(least), -logit(least), n_probabilities)), 12), MARKS)


def against_rule(p_P: Array, price: float) -> pd.DataFrame:
    """One row per criterion and p: criterion, p, best_size, rule_size, share, label (one of CLASSES).

    best_size is the best of 0 (where leaving the query out is worth more than any group) and 2 ... LARGEST, the
    smallest of equals; share the rule's value over the best, 0 where the rule's value is negative.
    """
    sizes_G = np.arange(2, LARGEST + 1)
    rule_P = rule_size(p_P, largest=LARGEST)
    frames = []
    for name, criterion in criteria(price).items():
        values_P_G = over_sizes(criterion.value, p_P, sizes_G)
        best_P = values_P_G.max(axis=1)
        # Equal up to rounding is equal: I/G is the same at 2 and 3.
        first_P = (values_P_G >= best_P[:, None] * (1 - 1e-12)).argmax(axis=1)
        attained_P = np.take_along_axis(values_P_G, rule_P[:, None] - 2, axis=1)[:, 0]
        share_P = np.clip(attained_P / np.where(best_P > 0, best_P, np.inf), 0.0, 1.0) + 0.0  # not −0
        label_P = np.select([share_P >= RIGHT, share_P >= HALF], CLASSES[:2], CLASSES[2])
        best_size_P = np.where(best_P > 0, sizes_G[first_P], 0)
        columns = {"p": p_P, "best_size": best_size_P, "rule_size": rule_P, "share": share_P, "label": label_P}
        frames.append(pd.DataFrame({"criterion": name} | columns))
    return pd.concat(frames, ignore_index=True)


def where_right(found: pd.DataFrame, titles: dict[str, str]) -> pd.DataFrame:
    """`against_rule` for reading, one row per criterion (index: its title).

    The best size at MARKS, the least share attained with its p, and the p of each of CLASSES. ValueError where a mark
    is not among the p of `found`.
    """
    rows = {}
    for name, part in found.groupby("criterion", sort=False):
        at = {f"best G at p = {p:g}": _best_size(part, p) for p in MARKS}
        least = part.loc[part["share"].idxmin()]
        ranges = {label: _ranges(part["p"].to_numpy(), part["label"].to_numpy() == label) for label in CLASSES}
        rows[titles[name]] = at | {"least share": f"{least['share']:.0%} at p = {least['p']:.2g}"} | ranges
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("criterion")


def _best_size(part: pd.DataFrame, p: float) -> int:
    rows = part[part["p"] == p]
    if rows.empty:
        raise ValueError(f"p = {p:g} was not evaluated: take the probabilities from success_grid")
    return int(rows["best_size"].iloc[0])


def _ranges(p_P: Array, chosen_P: Sequence[bool]) -> str:
    """Runs of chosen p as text, "0.01–0.45, 0.55–0.99"."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(chosen_P, dtype=int), [0]])))
    ends = [(f"{p_P[low]:.2g}", f"{p_P[high - 1]:.2g}") for low, high in edges.reshape(-1, 2)]
    return ", ".join(low if low == high else f"{low}–{high}" for low, high in ends)
