"""What a check against theory reports: a claim, what it expects, what was measured, and by which rule it holds.

Each verdict is a dict of plain JSON values: claim, expected, measured, interval ([low, high], 95%), tolerance
(relative; null for an inequality), rule, holds. `holds` false means *not shown*: with too few trials an inequality that
is true stays unshown.
"""

from pathlib import Path

import pandas as pd

from repro.files import write_json, write_parquet

Interval = tuple[float, float]


def at_most(claim: str, limit: float, measured: float, interval: Interval) -> dict:
    """Holds when the whole interval lies at or below `limit`."""
    return _verdict(claim, limit, measured, interval, None, "interval <= expected", interval[1] <= limit)


def at_least(claim: str, limit: float, measured: float, interval: Interval) -> dict:
    """Holds when the whole interval lies at or above `limit`."""
    return _verdict(claim, limit, measured, interval, None, "interval >= expected", interval[0] >= limit)


def within(claim: str, expected: float, measured: float, interval: Interval, tolerance: float) -> dict:
    """Holds when the whole interval lies within a relative `tolerance` of `expected`: a noisy run cannot pass."""
    holds = interval[0] >= expected * (1 - tolerance) and interval[1] <= expected * (1 + tolerance)
    return _verdict(claim, expected, measured, interval, tolerance, "interval within expected ± tolerance", holds)


def outcome(row: dict) -> str:
    """`holds`; `refuted`, the whole interval lies where the claim cannot hold; `not shown`, it lies on both sides."""
    if row["holds"]:
        return "holds"
    (low, high), expected, tolerance = row["interval"], row["expected"], row["tolerance"]
    if tolerance is not None:
        low_end, high_end = sorted((expected * (1 - tolerance), expected * (1 + tolerance)))
        refuted = high < low_end or low > high_end
    else:
        refuted = low > expected if row["rule"].startswith("interval <=") else high < expected
    return "refuted" if refuted else "not shown"


def table(verdicts: list[dict]) -> str:
    """The verdicts for reading: a Markdown table, one row per claim, numbers to three significant digits."""
    lines = [
        "| claim | outcome | expected | measured | 95% interval | tolerance | rule |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in verdicts:
        tolerance = "" if row["tolerance"] is None else f"±{row['tolerance']:.0%}"
        interval = "{:.3g} to {:.3g}".format(*row["interval"])
        numbers = f"{row['expected']:.3g} | {row['measured']:.3g} | {interval} | {tolerance}"
        claim = row["claim"].replace("|", "\\|")
        lines.append(f"| {claim} | {outcome(row)} | {numbers} | {row['rule']} |")
    return "\n".join(lines)


def tally(verdicts: list[dict]) -> str:
    """`7 of 9 claims hold; refuted: a; not shown: b.`"""
    words = [(row["claim"], outcome(row)) for row in verdicts]
    text = f"{sum(word == 'holds' for _, word in words)} of {len(words)} claims hold"
    for wanted in ("refuted", "not shown"):
        claims = [claim for claim, word in words if word == wanted]
        text += f"; {wanted}: {'; '.join(claims)}" if claims else ""
    return f"{text}."


def save(folder: str | Path, tables: dict[str, pd.DataFrame], verdicts: list[dict]) -> None:
    """Each table as <name>.parquet and the verdicts as verdict.json into `folder`, each file whole or not at all."""
    for name, frame in tables.items():
        write_parquet(frame, Path(folder) / f"{name}.parquet")
    write_json(verdicts, Path(folder) / "verdict.json")


def _verdict(claim, expected, measured, interval, tolerance, rule, holds) -> dict:
    return {
        "claim": claim,
        "expected": float(expected),
        "measured": float(measured),
        "interval": [float(end) for end in interval],
        "tolerance": tolerance,
        "rule": rule,
        "holds": bool(holds),
    }
