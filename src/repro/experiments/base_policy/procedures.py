"""Which steps have a wrong procedure, how often the policy does them by it, and what that does to its answers.

A step has one where a demonstrator who always follows it would do the step otherwise than one who follows none
(repro.tasks.demonstrations).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from random import Random

import pandas as pd

from repro.tasks.demonstrations import Mixture, demonstrate
from repro.tasks.queries import END_OF_STEPS, Query

NONE = "none"  # the procedure of a step that has no wrong one
EXAMPLES = {"carry": "7+8", "borrow": "12-5", "sign": "3-7", "stop": "22,7"}
WORDY, PLAIN = re.compile(r"-?\d+=(-?\d+[+-]\d+)=(-?\d+)"), re.compile(r"(-?\d+[+-]\d+)=(-?\d+)")
PAIR = re.compile(r"(\d+),([1-9]\d*)")


def steps_of(response: str) -> list[tuple[str, str]]:
    """(step, what it became) of a response, in order: ("7+8", "15") of a sum, ("12,8", "8,4") of Euclid's algorithm, or
    ("12,8", "#4") where it ended. Steps that restate or undo another are left out."""
    worked, end, answer = response.partition(END_OF_STEPS)
    pieces = worked.split(";")
    for pattern in (WORDY, PLAIN):  # next to wordy steps, plain ones undo them
        if sums := [found.groups() for piece in pieces if (found := pattern.fullmatch(piece))]:
            return sums
    pairs = [piece for piece in pieces if (found := PAIR.fullmatch(piece)) and int(found[1]) > int(found[2])]
    return list(zip(pairs, [*pairs[1:], end + answer], strict=False))


@cache
def becomes(step: str, procedure: str = NONE) -> str:
    """What a step becomes by a demonstrator who always follows this wrong procedure, or NONE."""
    dataset = "gcd" if "," in step else "chain_sum"
    query = Query(f"{step}=", "", "", {"metadata": {"source_dataset": dataset}})
    return steps_of(_worked(query, {procedure: 1.0} if procedure != NONE else {}))[0][1]


def example(bug: str) -> str:
    """A step done by a wrong procedure, such as `7+8=5`."""
    done = becomes(EXAMPLES[bug], bug)
    return EXAMPLES[bug] + ("" if done.startswith(END_OF_STEPS) else "=") + done


def procedure_of(step: str, bugs: Iterable[str]) -> str:
    """Which of the wrong procedures `bugs` a step has, or NONE."""
    return next((bug for bug in bugs if becomes(step, bug) != becomes(step)), NONE)


def describe_steps(responses: Iterable[str], bugs: Collection[str]) -> pd.DataFrame:
    """One row per wrong procedure and one for NONE (index): steps that have it, and the shares of these done by it (NaN
    for NONE) and done right; the rest are done otherwise."""
    rows = [
        {
            "procedure": (procedure := procedure_of(step, bugs)),
            "by it": float(done == becomes(step, procedure)) if procedure != NONE else float("nan"),
            "right": float(done == becomes(step)),
        }
        for response in responses
        for step, done in steps_of(response)
    ]
    groups = pd.DataFrame(rows, columns=["procedure", "by it", "right"]).groupby("procedure")
    table = groups.mean().reindex([*bugs, NONE])
    table.insert(0, "steps", groups.size().reindex(table.index, fill_value=0))
    return table


def by_wrong_steps(
    queries: Iterable[Query], sampled: Mapping[str, pd.DataFrame], bugs: Collection[str], most: int = 3
) -> pd.DataFrame:
    """One row per number of steps of a query's right solution that have a wrong procedure (index; `most` or more are
    one): queries, and the accuracy of each table of `sampled`, whose prompts are found among the queries."""
    solved = {query.prompt: steps_of(_worked(query, {})) for query in queries}
    numbers = {
        prompt: min(most, sum(procedure_of(step, bugs) != NONE for step, _ in steps))
        for prompt, steps in solved.items()
    }
    table = pd.DataFrame(
        {name: rows.groupby(rows["prompt"].map(numbers))["correct"].mean() for name, rows in sampled.items()}
    )
    table.insert(0, "queries", pd.Series(numbers, dtype=int).value_counts())
    return table.rename_axis("steps with a wrong procedure")


def _worked(query: Query, bugs: Mapping[str, float]) -> str:
    """The demonstration with plain steps and no slips, and with these wrong procedures."""
    return demonstrate(query, Mixture(0.0, 0.0, 0.0, 0.0, bugs=bugs), Random(0))
