"""The papers' result tables: configs/papers/results/<paper>.yaml, as {table: {column: {method: figure}}}."""

from functools import cache

from pydantic import ConfigDict, TypeAdapter

from repro.paths import CONFIGS
from repro.settings.fields import Section
from repro.settings.text import read_mapping

Tables = dict[str, dict[str, dict[str, float]]]
TABLES = TypeAdapter(Tables, config=ConfigDict(strict=True))  # a word in place of a figure is an error


@cache
def paper_tables(paper: str) -> Tables:
    return TABLES.validate_python(read_mapping(CONFIGS / "papers" / "results" / f"{paper}.yaml"))


class Gain(Section):
    """A size computed from a table: `of` less `over`, each one method or several, as a range over those columns of
    the table (models or benchmarks) that have both, or over `only` some. `also`: a further figure, from the text."""

    table: str
    of: str | list[str]
    over: str | list[str]
    only: list[str] | None = None
    also: float | None = None

    def range(self, paper: str) -> tuple[float, float]:
        """(least, most), to the one decimal of the tables; ValueError if no column has both."""
        of, over = ([names] if isinstance(names, str) else names for names in (self.of, self.over))
        gains = [
            round(methods[own] - methods[other], 1)
            for column, methods in paper_tables(paper)[self.table].items()
            if self.only is None or column in self.only
            for own in of
            for other in over
            if own in methods and other in methods
        ]
        if not gains:
            raise ValueError(f"{self.table} of {paper} has no column with both {self.of} and {self.over}")
        gains += [] if self.also is None else [self.also]
        return min(gains), max(gains)
