"""How good each proxy of the gradient norm is, with intervals over seeds."""

from typing import get_args

import pandas as pd

from repro.experiments.fidelity.proxies import PROXIES, UNIFORM, WHILE_SAMPLING, Needs
from repro.settings import Statistics
from repro.stats.intervals import over_seeds
from repro.stats.tables import intervals

MEASURES = {
    "pearson": "correlation with the norm",
    "pearson_signal": "where A ≠ 0",
    "product": "cost, 1 is ideal",
}
PAPER = "advantage"  # |A|, the paper's proxy
TIE = 0.02  # products this close, relatively, count as equal; the cheaper proxy then wins


def rank(table: pd.DataFrame, statistics: Statistics) -> pd.DataFrame:
    """One row per proxy (index), uniform sampling last: `MEASURES`, each with _low and _high.

    Mean over a seed's checkpoints, then over seeds, with its t interval. NaN where a measure is undefined.
    """
    return over_seeds(table, "proxy", statistics, list(MEASURES)).reindex([*PROXIES, UNIFORM])


def best(ranking: pd.DataFrame, needs: tuple[str, ...] = WHILE_SAMPLING) -> str:
    """The proxy with the least product among those that need nothing but `needs`. Of the proxies within `TIE` of it,
    the one whose needs are cheapest; of these, the first in `PROXIES`."""
    names = [name for name, proxy in PROXIES.items() if proxy.needs in needs]
    products = ranking.loc[sorted(names, key=lambda name: get_args(Needs).index(PROXIES[name].needs)), "product"]
    return str((products <= products.min() * (1 + TIE)).idxmax())


def measures(ranking: pd.DataFrame, divisor: str = "/T") -> pd.DataFrame:
    """`rank`'s table for reading: the proxy's formula, then each of `MEASURES` as `0.64 [0.62, 0.65]`.

    `divisor` takes the place of `/d` in the formulas: /T for the sequence mean, nothing where tokens are summed."""
    formulas = [
        "*uniform sampling, $p=1/N$*" if name == UNIFORM else formula(name, divisor) for name in map(str, ranking.index)
    ]
    columns = {heading: intervals(ranking, measure, ".2f") for measure, heading in MEASURES.items()}
    return pd.DataFrame({"proxy": formulas, **columns})


def formula(name: str, divisor: str = "/T") -> str:
    """The proxy's formula as inline mathematics."""
    return f"${PROXIES[name].formula.replace('/d', divisor)}$"
