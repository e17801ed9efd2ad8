"""Every check of theory against simulation, gathered from the verdicts that the theory notebooks leave."""

import json
from pathlib import Path

import pandas as pd

from repro.paths import RESULTS
from repro.settings import Settings
from repro.theory.verdict import outcome


def verdicts(settings: Settings, root: Path = RESULTS / "theory") -> pd.DataFrame:
    """One row per claim: group, claim, expected, measured, tolerance, rule, outcome, low, high; in params.yaml's order.

    FileNotFoundError with the mend when a group has not been run.
    """
    rows = []
    for group in type(settings.theory).model_fields:
        path = root / group / "verdict.json"
        if not path.exists():
            raise FileNotFoundError(f"{path} is not there yet: run `dvc repro theory@{group}` first")
        for row in json.loads(path.read_text()):
            low, high = row["interval"]
            kept = {name: row[name] for name in ("claim", "expected", "measured", "tolerance", "rule")}
            rows.append({"group": group, **kept, "outcome": outcome(row), "low": low, "high": high})
    return pd.DataFrame(rows)


def table(found: pd.DataFrame) -> str:
    """Markdown: the verdicts of all groups, numbers to three significant digits."""
    lines = [
        "| notebook | claim | outcome | expected | measured | 95% interval | rule |",
        "|---|---|---|---:|---:|---|---|",
    ]
    for row in found.to_dict("records"):
        tolerance = "" if pd.isna(row["tolerance"]) else f" (±{row['tolerance']:.0%})"
        cells = [
            row["group"],
            row["claim"].replace("|", "\\|"),
            row["outcome"],
            f"{row['expected']:.3g}",
            f"{row['measured']:.3g}",
            f"{row['low']:.3g} to {row['high']:.3g}",
            f"{row['rule']}{tolerance}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def tally(found: pd.DataFrame) -> str:
    """How many claims hold, are refuted or stay open, in a sentence; those that do not hold by name."""
    count = found["outcome"].value_counts()
    notebooks = found["group"].nunique()
    text = (
        f"Of {len(found)} claims checked by simulation in {notebooks} notebooks, {count.get('holds', 0)} hold, "
        f"{count.get('refuted', 0)} are refuted and {count.get('not shown', 0)} are not shown either way."
    )
    for word in ("refuted", "not shown"):
        claims = found.loc[found["outcome"] == word, "claim"]
        text += f" {word.capitalize()}: {'; '.join(claims)}." if len(claims) else ""
    return text
