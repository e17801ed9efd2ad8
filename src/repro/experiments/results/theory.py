"""Every check of theory against simulation, gathered from the verdicts that the theory notebooks leave."""

from pathlib import Path

import pandas as pd

from repro.files import read_parquet
from repro.paths import RESULTS
from repro.settings import Settings


def verdicts(settings: Settings, root: Path = RESULTS / "theory") -> pd.DataFrame:
    """One row per claim: `group`, then the columns of repro.stats.verdicts.Verdict; groups in params.yaml's order.

    FileNotFoundError names the command for a group that has not been run.
    """
    parts = []
    for group in type(settings.theory).model_fields:
        part = read_parquet(root / group / "verdicts.parquet", f"dvc repro theory@{group}")
        part.insert(0, "group", group)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)
