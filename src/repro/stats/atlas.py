"""The atlas's data: `load("runs")` and `load("curves")` are a table each, joined by the column `run`."""

from pathlib import Path

import pandas as pd

from repro import paths
from repro.files import read_parquet

TABLES = ("runs", "curves", "steps", "batches", "questions", "temperatures", "seconds")


def load(table: str, panel: str | None = None, root: Path | None = None) -> pd.DataFrame:
    """One table of all panels, or of one: runs (a row per run: panel, policy, arm, seed, what was varied, machine),
    curves (a row per evaluation), steps (per training step), batches (per logged batch, before selection), questions
    (per held-out query at the end), temperatures (per held-out query and temperature, of some panels), seconds (CPU
    seconds by phase). atlas/README.md describes the columns. Empty where nothing has been made yet."""
    if table not in TABLES:
        raise ValueError(f"the atlas has no table {table!r}; it has {', '.join(TABLES)}")
    files = sorted((root or paths.ATLAS_DATA).glob(f"{panel or '*'}/{table}*.parquet"))
    parts = [read_parquet(path, "python -m repro.atlas run") for path in files]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"run": pd.Series(dtype=str)})
