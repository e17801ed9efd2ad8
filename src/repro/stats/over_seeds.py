"""From one row per seed to the mean over seeds with its bootstrap interval, for every measure of a table at once."""

from collections.abc import Mapping, Sequence

import pandas as pd

from repro.settings import Statistics
from repro.stats.intervals import mean_intervals
from repro.stats.tables import intervals


def over_seeds(table: pd.DataFrame, by: str | Sequence[str], statistics: Statistics) -> pd.DataFrame:
    """One row per value of the column or columns `by` (the index), in the order of `table`.

    Every other column but `seed` is averaged over the group's rows, one per seed: name, name_low, name_high. Bounds are
    NaN for a single seed; see `repro.stats.intervals.mean_intervals`.
    """
    by = [by] if isinstance(by, str) else list(by)
    measures = [name for name in table if name not in (*by, "seed")]
    rows = []
    for key, group in table.groupby(by, sort=False):
        means = mean_intervals({name: group[name].to_numpy(float) for name in measures}, statistics)
        row = dict(zip(by, key, strict=True))
        for name, interval in means.items():
            row |= dict(zip((name, f"{name}_low", f"{name}_high"), interval, strict=True))
        rows.append(row)
    columns = [*by, *(f"{name}{end}" for name in measures for end in ("", "_low", "_high"))]
    return pd.DataFrame(rows, columns=columns).set_index(by)


def readable(means: pd.DataFrame, formats: Mapping[str, str]) -> pd.DataFrame:
    """Columns of `over_seeds` with their intervals as text. `formats`: {column: format specification}."""
    return pd.DataFrame({name: intervals(means, name, spec) for name, spec in formats.items()}, index=means.index)
