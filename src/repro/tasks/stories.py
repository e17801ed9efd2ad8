"""Queries in words: what someone has after a few changes. Two kinds of step have a wrong procedure that most
demonstrators share: `carry`, it is dropped (17+8=15), and `double`, two are added (doubles 9: 9+2=11)."""

from collections.abc import Mapping
from random import Random
from typing import Any

NAMES = ("Mary", "Tom", "Jane", "Paul", "Anna", "Ben", "Lily", "Sam", "Jack", "Max")
THINGS = ("shells", "coins", "cards", "books", "stamps", "balls")
SAID = {"find": "finds {}", "lose": "loses {}", "double": "doubles them", "half": "gives away half"}
KINDS = ("find", "find", "lose", "double", "double", "half")
LARGEST = 60


def draw(rng: Random, count: int) -> dict[str, Any]:
    """A question of `count` steps, its answer, and what both are made of; all totals are whole, from 1 to `LARGEST`."""
    start = rng.randint(3, 12)
    total, steps = start, []
    while len(steps) < count:
        kind, number = rng.choice(KINDS), rng.randint(2, 9)
        after = _after(total, kind, number)
        if 1 <= after <= LARGEST and not (kind == "half" and total % 2):
            steps.append((kind, number))
            total = after
    who, what = rng.choice(NAMES), rng.choice(THINGS)
    changes = ", then ".join(SAID[kind].format(number) for kind, number in steps)
    question = f"{who} has {start} {what}, then {changes}. How many {what} now?"
    made_of = {"source_dataset": "stories", "start": start, "steps": steps, "who": who, "what": what}
    return {"question": question, "answer": str(total), "metadata": made_of}


def work(story: Mapping[str, Any], bugs: Mapping[str, float], wordy: bool, rng: Random) -> tuple[list[str], str]:
    """(steps, answer) of one demonstration of a story, the metadata of `draw`. bugs: the probability of each wrong
    procedure where it applies, whether the steps are wordy or not."""
    total, who, what = story["start"], story["who"], story["what"]
    steps = [f"{who} starts with {total} {what}."] if wordy else []
    for kind, number in story["steps"]:
        written, total = _written(total, kind, number, bugs, rng)
        said = SAID[kind].format(number)
        steps.append(f"{who} {said}: {written}, so {total} {what}." if wordy else f"{said}: {written}.")
    return steps, str(total)


def _after(total: int, kind: str, number: int) -> int:
    return {"find": total + number, "lose": max(0, total - number), "double": 2 * total, "half": total // 2}[kind]


def _written(total: int, kind: str, number: int, bugs: Mapping[str, float], rng: Random) -> tuple[str, int]:
    """(equation, result) of one step, by the wrong procedure as often as `bugs` has it."""
    after = _after(total, kind, number)
    if kind == "double":
        wrong = rng.random() < bugs.get("double", 0.0)
        return (f"{total}+2={total + 2}", total + 2) if wrong else (f"{total}+{total}={after}", after)
    if kind == "find" and total % 10 + number >= 10 and rng.random() < bugs.get("carry", 0.0):
        after -= 10
    return {"find": f"{total}+{number}", "lose": f"{total}-{number}", "half": f"{total}/2"}[kind] + f"={after}", after
