"""Sizes of claims, computed from the papers' tables, configs/papers/tables (repro.verl.published)."""

from collections.abc import Sequence

from repro.settings.fields import Section
from repro.verl.published import printed


class Tables(Section):
    """Where in the papers' tables a size is looked up: at `scales`, by default all, and in the columns `sources`."""

    scales: list[str] | None = None
    sources: Sequence[str] = ("average",)


class Gain(Section):
    """`of` less `over`, each one method or several as printed, as a range over the scales (models) and benchmarks that
    have both, or over `only` some scales. `also`: a further figure, from the text."""

    metric: str = "pass@1"
    of: str | list[str]
    over: str | list[str]
    only: list[str] | None = None
    also: float | None = None

    def range(self, tables: Tables) -> tuple[float, float]:
        """(least, most), to the one decimal of the tables; ValueError if no column has both."""
        of, over = ([names] if isinstance(names, str) else names for names in (self.of, self.over))
        rows = printed()
        rows = rows[(rows["metric"] == self.metric) & rows["source"].isin(tables.sources)]
        if (scales := self.only or tables.scales) is not None:
            rows = rows[rows["scale"].isin(scales)]
        first = rows.drop_duplicates(["scale", "source", "method"])  # some are printed twice
        columns = [
            dict(zip(own["method"], own["percent"], strict=True)) for _, own in first.groupby(["scale", "source"])
        ]
        gains = [
            round(float(methods[own] - methods[other]), 1)
            for methods in columns
            for own in of
            for other in over
            if own in methods and other in methods
        ]
        if not gains:
            raise ValueError(f"no paper's table has {self.metric} of both {self.of} and {self.over}")
        gains += [] if self.also is None else [self.also]
        return min(gains), max(gains)
