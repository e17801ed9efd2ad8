"""All claims with their figures and verdicts, as a frame, as Markdown and as one sentence."""

import numpy as np
import pandas as pd

from repro.experiments.claims import cost_aware_learning, d3s, d3s_dynamics, elsewhere, sgpo
from repro.experiments.claims.claim import Claim
from repro.experiments.claims.study import Study, Untestable
from repro.experiments.claims.verdicts import UNTESTED, VERDICTS, Expectation, verdict
from repro.stats.multiplicity import LEAST_SEEDS

CLAIMS = [*cost_aware_learning.CLAIMS, *d3s.CLAIMS, *d3s_dynamics.CLAIMS, *sgpo.CLAIMS, *elsewhere.CLAIMS]
BY_LUCK = (
    "Intervals are not corrected for the number of claims, and those of five seeds cover 80 to 85%: of claims with "
    "nothing behind them up to about one in ten comes out as *same direction* and as many as *opposite*."
)
COLUMNS = ("id", "paper", "place", "claim", "setting", "paper_says", "we_measured", "value", "low", "high", "verdict")


def claims_table(study: Study, claims: list[Claim] = CLAIMS) -> pd.DataFrame:
    """One row per claim, papers together: COLUMNS, then `reason` (why it cannot be tested here, else "") and `timed`.

    value, low, high: our figure with its interval, NaN without one; a cost is infinite where the level was not reached.
    """
    rows = [_row(claim, study) for claim in claims]
    frame = pd.DataFrame(rows, columns=[*COLUMNS, "reason", "timed"])
    return frame.sort_values("paper", kind="stable", ignore_index=True)


def _row(claim: Claim, study: Study) -> dict:
    value, low, high = (float("nan"),) * 3
    reason = claim.reason
    if claim.measure is not None:
        try:
            value, low, high = claim.measure(study)
        except Untestable as error:
            reason = str(error)
    if not reason and np.isnan([value, low, high]).any():
        reason = "the figure is undefined" if np.isnan(value) else f"no interval from fewer than {LEAST_SEEDS} seeds"
    return {
        "id": claim.id,
        "paper": claim.paper,
        "place": claim.place,
        "claim": claim.statement,
        "setting": claim.setting,
        "paper_says": _says(claim.expected) if claim.expected else "",
        "we_measured": "" if np.isnan(value) else _measured(value, low, high, claim.expected),
        "value": value,
        "low": low,
        "high": high,
        "verdict": UNTESTED if reason else verdict(value, low, high, claim.expected),
        "reason": reason,
        "timed": claim.timed,
    }


def _says(expected: Expectation) -> str:
    if expected.size is not None:
        least, most = np.broadcast_to(expected.size, 2)
        size = _number(least, expected)
        return size + _unit(expected) if least == most else f"{size} to {_number(most, expected)}{_unit(expected)}"
    if expected.null is None:
        return expected.direction
    return f"{expected.direction} {'to' if expected.direction == 'equal' else 'than'} {expected.null:g}"


def _measured(value: float, low: float, high: float, expected: Expectation) -> str:
    unit = _unit(expected)
    if np.isinf(value) or (expected.kind == "ratio" and value == 0):  # the level was not reached: no cost, no speed
        bound = f", at least {_number(low, expected)}" if np.isinf(value) else f", at most {_number(high, expected)}"
        return "not reached" + ("" if np.isnan(low) else bound + unit)
    if low == value == high or np.isnan(low):
        return _number(value, expected) + unit
    return f"{_number(value, expected)} [{_number(low, expected)}, {_number(high, expected)}]{unit}".replace("inf", "∞")


def _number(value: float, expected: Expectation) -> str:
    return f"{value:{'+.2f' if expected.kind == 'points' else '.2f' if expected.kind == 'ratio' else '.3g'}}"


def _unit(expected: Expectation) -> str:
    return {"points": " points", "ratio": "×", "level": ""}[expected.kind]


def claims_markdown(frame: pd.DataFrame) -> str:
    """A heading and a table for each paper: claim, where and of what, what it says, what we measured, verdict."""
    lines = []
    for paper, rows in frame.groupby("paper", sort=False):
        lines += [f"### {paper}", "", "| claim | where | paper says | we measured | verdict |", "|---|---|---|---|---|"]
        for row in rows.to_dict("records"):
            found = f"**{row['verdict']}**" + (f": {row['reason']}" if row["reason"] else "")
            cells = [row["claim"], f"{row['place']}; {row['setting']}", row["paper_says"], row["we_measured"], found]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def tally(frame: pd.DataFrame) -> str:
    """How many claims got which verdict, in one sentence."""
    counts = frame["verdict"].value_counts()
    parts = [f"{counts.get(name, 0)} {name}" for name in VERDICTS]
    by_paper = "; ".join(f"{paper} {len(rows)}" for paper, rows in frame.groupby("paper", sort=False))
    return f"Of {len(frame)} claims ({by_paper}): {', '.join(parts[:-1])}, and {parts[-1]}."
