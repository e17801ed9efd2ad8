"""Clean a training set: drop unusable rows, repeats, contradictions, and questions of the evaluation sets."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from repro.data.answers import matchable

OPERATORS = frozenset("+-*/=<>^!|%.")
MINUS = str.maketrans("−–—", "---")
# Commands that only affect layout. A following letter would make it another command, as in \leftarrow.
LAYOUT = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|text|mathrm|mathbf|operatorname|quad|qquad)(?![a-z])|\\[,;:! ]"
)
FULL_STOP = re.compile(r"(?<!\d)\.|\.(?!\d)")


@dataclass(frozen=True)
class Item:
    """A question, its answer and its upstream id ("" if it has none)."""

    question: str
    answer: str
    source_id: str = ""


@dataclass
class Count:
    """Numbers of rows, each counted once: read = unusable + repeats + contradictory + evaluated + written.

    unusable       without a question or an answer that a response can match
    repeats        of an earlier question, with the same answer
    contradictory  of a question with different answers; none of them is kept
    evaluated      of a question in an evaluation set, apart from repeats; `by_set` counts them for each set, and a
                   question of two sets in both
    """

    read: int = 0
    unusable: int = 0
    repeats: int = 0
    contradictory: int = 0
    evaluated: int = 0
    written: int = 0
    by_set: dict[str, int] = field(default_factory=dict)


def normalise(question: str) -> str:
    """The key by which two wordings are the same question: letters, digits and operators, without case, spacing,
    punctuation, dollar signs and LaTeX layout commands. Our definition; a rephrased question is a different one."""
    text = unicodedata.normalize("NFKC", question).translate(MINUS).casefold()
    text = LAYOUT.sub("", text).replace("dfrac", "frac").replace("tfrac", "frac")
    text = FULL_STOP.sub("", text)
    return "".join(letter for letter in text if letter.isalnum() or letter in OPERATORS) or question


def usable(items: Iterable[Item], count: Count) -> list[Item]:
    """The items with a question and an answer."""
    kept = []
    for item in items:
        count.read += 1
        if item.question and matchable(item.answer):
            kept.append(item)
        else:
            count.unusable += 1
    count.written = len(kept)
    return kept


def cleaned(items: Iterable[Item], evaluation: Mapping[str, frozenset[str]], count: Count) -> list[Item]:
    """The first row of every question with a single answer that is in no evaluation set, in order of appearance.

    `evaluation`: the normalised questions of each set.
    """
    keys: dict[str, str] = {}  # by verbatim question, so that the many repeats are normalised only once
    first: dict[str, Item] = {}
    answers: dict[str, set[str]] = {}
    rows: dict[str, int] = {}
    for item in items:
        count.read += 1
        if not (item.question and matchable(item.answer)):
            count.unusable += 1
            continue
        key = keys.get(item.question) or keys.setdefault(item.question, normalise(item.question))
        first.setdefault(key, item)
        answers.setdefault(key, set()).add("".join(item.answer.split()))
        rows[key] = rows.get(key, 0) + 1
    count.by_set = {name: 0 for name in evaluation}
    kept = []
    for key, item in first.items():
        if len(answers[key]) > 1:
            count.contradictory += rows[key]
            continue
        count.repeats += rows[key] - 1
        overlaps = [name for name, questions in evaluation.items() if key in questions]
        for name in overlaps:
            count.by_set[name] += 1
        if overlaps:
            count.evaluated += 1
        else:
            kept.append(item)
    count.written = len(kept)
    return kept
