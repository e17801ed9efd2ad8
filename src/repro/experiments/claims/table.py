"""All claims with their figures and verdicts, as rows of data; for reading, their words are joined by id."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from repro.experiments.claims.measures import figure
from repro.experiments.claims.schema import SUFFIX, Claim, load
from repro.experiments.claims.study import Study, Unmeasured, Untestable
from repro.stats.multiplicity import LEAST_SEEDS
from repro.stats.tables import interval
from repro.stats.verdicts import OPPOSITE, SAME, SAME_SIZE, UNMEASURED, UNTESTED, VERDICTS, Expectation, verdict

UNITS = {"points": " points", "ratio": "×", "level": ""}
HALVES = ("first", "second")
OTHERWISE = "another verdict as computed"
FORMATS = {"points": "+.2f", "ratio": ".2f", "level": ".3g"}


def claims_table(study: Study, claims: Iterable[Claim] | None = None) -> pd.DataFrame:
    """One row per claim, in the order of the files. Columns:

    id, count            of a claim on trained tokens: "papers" or "computed", a row each; else ""
    verdict              one of repro.stats.verdicts.VERDICTS
    value, low, high     our figure with its interval, NaN without one; infinite for a cost of what was not reached
    direction, kind, reference, margin, size_low, size_high
                         what is expected (repro.stats.verdicts.Expectation); both sizes alike where it is one number
    missing              what the study lacks for a figure or an interval, else ""
    first, second        the figure from either half of the seeds (`Study.halves`); NaN where it has none there
    alike                "yes" where both lie on the side of a verdict for or against the claim, "no" where one does
                         not; "" where there is no such verdict, or no seeds
    """
    halves, claims = study.halves(), load() if claims is None else claims
    rows = [(claim, _row(claim, study)) for claim in claims]
    return pd.DataFrame([row | _in_halves(row, claim, halves) for claim, row in rows])


def _in_halves(row: dict, claim: Claim, halves: Sequence[Study]) -> dict:
    values = []
    for half in halves:
        try:
            values.append(float(figure(half, claim.measure)[0]) if claim.measure is not None else np.nan)
        except Untestable:
            values.append(np.nan)
    told = row["verdict"] in (SAME, SAME_SIZE, OPPOSITE) and not np.isnan(values).any()
    alike = ""
    if told and not row["value"] == row["low"] == row["high"]:
        effects = [claim.expectation.effect(value) for value in values]
        side = "out" if row["verdict"] == OPPOSITE else "in"
        alike = "yes" if all(claim.expectation.region.place((effect,) * 2) == side for effect in effects) else "no"
    return {"first": values[0], "second": values[1], "alike": alike}


def with_words(table: pd.DataFrame, claims: Iterable[Claim] | None = None) -> pd.DataFrame:
    """`claims_table` for reading: paper, claim, trained tokens (how they are counted), where, paper says, we measured,
    verdict, halves alike, by id."""
    words = {claim.id: claim for claim in (load() if claims is None else claims)}
    rows = []
    for row in table.to_dict("records"):
        claim = words[row["id"]]
        reason = claim.reason or (f"needs {row['missing']}" if row["missing"] else "")
        rows.append(
            {
                "id": row["id"],
                "paper": claim.paper,
                "claim": claim.claim,
                "trained tokens": {"papers": "as the papers count", "computed": "as computed"}.get(claim.count, "–"),
                "where": f"{claim.place}; {claim.setting}",
                "paper says": _says(claim.expectation) if claim.expectation else "",
                "we measured": _measured(row["value"], row["low"], row["high"], row["kind"]),
                "verdict": f"{row['verdict']}: {reason}" if reason else row["verdict"],
                "halves alike": _halves(row),
            }
        )
    return pd.DataFrame(rows).set_index("id")


def tally(table: pd.DataFrame, claims: Iterable[Claim] | None = None) -> pd.DataFrame:
    """How many claims of each paper got each verdict, a claim once, by the papers' own count of trained tokens; and of
    those on trained tokens, how many get another verdict as computed (`OTHERWISE`)."""
    papers = {claim.id: claim.paper for claim in (load() if claims is None else claims)}
    own = table[table["count"] != "computed"]
    counts = pd.crosstab(own["id"].map(papers).to_numpy(), own["verdict"]).reindex(columns=VERDICTS, fill_value=0)
    changed = other_verdicts(table)["id"].map(papers).value_counts()
    return counts.assign(**{OTHERWISE: changed.reindex(counts.index, fill_value=0)}).rename_axis("paper")


def other_verdicts(table: pd.DataFrame) -> pd.DataFrame:
    """id, papers, computed: the verdicts of the claims that get another one when tokens are counted as computed."""
    computed = table[table["count"] == "computed"].assign(id=lambda rows: rows["id"].str.removesuffix(SUFFIX))
    both = table[table["count"] == "papers"][["id", "verdict"]].merge(computed[["id", "verdict"]], on="id")
    both = both.set_axis(["id", "papers", "computed"], axis=1)
    return both[both["papers"] != both["computed"]].reset_index(drop=True)


def _row(claim: Claim, study: Study) -> dict:
    value, low, high, missing, lacking = *(float("nan"),) * 3, "", UNTESTED
    if claim.measure is not None:
        try:
            value, low, high = figure(study, claim.measure)
        except Untestable as error:
            missing, lacking = str(error), UNMEASURED if isinstance(error, Unmeasured) else UNTESTED
    if claim.measure is not None and not missing and np.isnan([value, low, high]).any():
        missing = "a defined figure" if np.isnan(value) else f"{LEAST_SEEDS} seeds"
    tested = claim.measure is not None and not missing
    return {
        "id": claim.id,
        "count": claim.count,
        "value": value,
        "low": low,
        "high": high,
        **_expected(claim.expectation),
        "verdict": verdict(value, low, high, claim.expectation) if tested else lacking,
        "missing": missing,
    }


def _expected(expected: Expectation | None) -> dict:
    nan = float("nan")
    if expected is None:
        return {"direction": "", "kind": ""} | dict.fromkeys(("reference", "margin", "size_low", "size_high"), nan)
    least, most = (nan, nan) if expected.size is None else map(float, np.broadcast_to(expected.size, 2))
    return {
        "direction": expected.direction,
        "kind": expected.kind,
        "reference": float(expected.no_effect),
        "margin": nan if expected.margin is None else float(expected.margin),
        "size_low": least,
        "size_high": most,
    }


def _says(expected: Expectation) -> str:
    """`+2.80 to +5.00 points`, `lower than 0.1`, `higher`."""
    if expected.size is not None:
        ends = [format(end, FORMATS[expected.kind]) for end in np.broadcast_to(expected.size, 2)]
        return " to ".join(dict.fromkeys(ends)) + UNITS[expected.kind]
    if expected.reference is None:
        return expected.direction
    return f"{expected.direction} {'to' if expected.direction == 'equal' else 'than'} {expected.reference:g}"


def _halves(row: dict) -> str:
    """`yes: +1.20, +0.40`; without a word where the whole has no verdict for or against the claim."""
    values = (_measured(row[name], np.nan, np.nan, row["kind"]) for name in HALVES)
    pair = [value.removesuffix(UNITS.get(row["kind"], "")) for value in values]
    exact = row["value"] == row["low"] == row["high"]
    if exact or not all(pair):
        return ""
    return f"{row['alike']}: {', '.join(pair)}".removeprefix(": ")


def _measured(value: float, low: float, high: float, kind: str) -> str:
    """`+2.50 [+1.20, +3.10] points`, `not reached, not before 10.00×`; empty where there is no figure."""
    if np.isnan(value):
        return ""
    spec, unit = FORMATS[kind], UNITS[kind]
    if np.isinf(value) or (kind == "ratio" and value == 0):  # the level was not reached: no cost, no speed
        bound = f", not before {low:{spec}}" if np.isinf(value) else f", at most {high:{spec}}".replace("inf", "∞")
        return "not reached" + ("" if np.isnan(low) else bound + unit)
    exact = low == value == high
    return interval(value, *(np.nan, np.nan) if exact else (low, high), spec) + unit
