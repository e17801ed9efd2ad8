"""The study's tables, as claims read them."""

from dataclasses import dataclass, replace

import pandas as pd

from repro.settings import Settings


class Untestable(Exception):
    """What a claim would need to have a figure here, as the end of the sentence `cannot be tested here: needs …`."""


class Unmeasured(Untestable):
    """Runs, or measurements of them, that could be made here and were not."""


@dataclass(frozen=True)
class Study:
    """The tables of a study, those of repro.stats.runs with their column `arm`; None for what has not been made.

    fidelity: arm, step, seed, proxy, pearson, pearson_signal, chi2. drift: a row per checkpoint,
    results/drift/summary.parquet. theory: the verdicts of the theory notebooks, repro.experiments.results.theory.
    """

    settings: Settings
    evaluations: pd.DataFrame | None = None
    steps: pd.DataFrame | None = None
    questions: pd.DataFrame | None = None
    selection: pd.DataFrame | None = None
    fidelity: pd.DataFrame | None = None
    drift: pd.DataFrame | None = None
    theory: pd.DataFrame | None = None

    def table(self, name: str) -> pd.DataFrame:
        """One table; Untestable if it has not been made."""
        if (frame := getattr(self, name)) is None:
            raise Untestable(f"table {name}")
        return frame

    def runs(self, table: str, arm: str, *columns: str) -> pd.DataFrame:
        """The rows of one arm; Unmeasured without such an arm or a row, Untestable without the table or a column."""
        if arm not in self.settings.all_arms:
            raise Unmeasured(f"arm {arm}")
        frame = self.table(table)
        missing = [column for column in ("arm", "seed", *columns) if column not in frame]
        if missing:
            raise Untestable(f"column {missing[0]} in {table}")
        rows = frame[frame["arm"] == arm]
        if rows.empty:
            raise Unmeasured(f"{table} of arm {arm}")
        return rows

    def halves(self) -> "tuple[Study, Study]":
        """The study on every other of its seeds, and on the rest: of five, on the first, third and fifth, and on the
        second and fourth. What has no seeds is in both."""
        named = ("evaluations", "steps", "questions", "selection", "fidelity", "drift")
        frames = {name: frame for name in named if (frame := getattr(self, name)) is not None and "seed" in frame}
        seeds = sorted({seed for frame in frames.values() for seed in frame["seed"].unique()})
        first, second = (
            replace(self, **{name: frame[frame["seed"].isin(seeds[start::2])] for name, frame in frames.items()})
            for start in (0, 1)
        )
        return first, second
