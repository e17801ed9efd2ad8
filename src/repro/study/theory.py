"""Every check of theory against simulation, gathered from the verdicts that the theory notebooks leave."""

import json
from pathlib import Path

import pandas as pd

from repro.paths import RESULTS
from repro.settings import Settings


def verdicts(settings: Settings, root: Path = RESULTS / "theory") -> pd.DataFrame:
    """One row per claim: group, claim, expected, measured, low, high, tolerance, rule, holds; groups as in params.yaml.

    FileNotFoundError with the mend when a group has not been run.
    """
    rows = []
    for group in type(settings.theory).model_fields:
        path = root / group / "verdict.json"
        if not path.exists():
            raise FileNotFoundError(f"{path} is not there yet: run `dvc repro theory@{group}` first")
        for row in json.loads(path.read_text()):
            low, high = row.pop("interval")
            rows.append({"group": group, **row, "low": low, "high": high})
    return pd.DataFrame(rows)


def table(found: pd.DataFrame) -> str:
    """Markdown: the verdicts of all groups, numbers to three significant digits."""
    lines = [
        "| notebook | claim | holds | expected | measured | 95% interval | rule |",
        "|---|---|---|---:|---:|---|---|",
    ]
    for row in found.to_dict("records"):
        tolerance = "" if pd.isna(row["tolerance"]) else f" (±{row['tolerance']:.0%})"
        cells = [
            row["group"],
            row["claim"].replace("|", "\\|"),
            "yes" if row["holds"] else "not shown",
            f"{row['expected']:.3g}",
            f"{row['measured']:.3g}",
            f"{row['low']:.3g} to {row['high']:.3g}",
            f"{row['rule']}{tolerance}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def tally(found: pd.DataFrame) -> str:
    """How many claims hold, in a sentence."""
    missed = found[~found["holds"].astype(bool)]
    held, notebooks = len(found) - len(missed), found["group"].nunique()
    text = f"Of {len(found)} claims checked by simulation in {notebooks} notebooks, {held} hold"
    return f"{text}." if missed.empty else f"{text}; not shown: {'; '.join(missed['claim'])}."
