"""What a training set leaves out: rows it cannot use, repeats, contradictions, and questions it is evaluated on."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

OPERATORS = frozenset("+-*/=<>^!|%.")
MINUS = str.maketrans("−–—", "---")
# Commands that only set type. What follows a letter would be another command, as in \leftarrow.
LAYOUT = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|text|mathrm|mathbf|operatorname|quad|qquad)(?![a-z])|\\[,;:! ]"
)
FULL_STOP = re.compile(r"(?<!\d)\.|\.(?!\d)")


@dataclass(frozen=True)
class Item:
    """A question, its answer and upstream's id of it ("" where it has none)."""

    question: str
    answer: str
    source_id: str = ""


@dataclass
class Count:
    """Rows, each in one place: read = unusable + repeats + contradictory + evaluated + written.

    unusable       without a question or without an answer
    repeats        of a question that stands there before, with the same answer
    contradictory  of a question that stands there with different answers; none of them is kept
    evaluated      of a question that is in an evaluation set, its repeats aside; `by_set` has each set's share, and a
                   question of two sets is in both
    """

    read: int = 0
    unusable: int = 0
    repeats: int = 0
    contradictory: int = 0
    evaluated: int = 0
    written: int = 0
    by_set: dict[str, int] = field(default_factory=dict)


def normalise(question: str) -> str:
    """What makes two wordings the same question: letters, digits and operators, without case, spacing, punctuation,
    dollar signs and LaTeX that only sets type. Ours; a reworded question is another one."""
    text = unicodedata.normalize("NFKC", question).translate(MINUS).casefold()
    text = LAYOUT.sub("", text).replace("dfrac", "frac").replace("tfrac", "frac")
    text = FULL_STOP.sub("", text)
    return "".join(letter for letter in text if letter.isalnum() or letter in OPERATORS) or question


def usable(items: Iterable[Item], count: Count) -> list[Item]:
    """Those with a question and an answer."""
    kept = []
    for item in items:
        count.read += 1
        if item.question and item.answer:
            kept.append(item)
        else:
            count.unusable += 1
    count.written = len(kept)
    return kept


def cleaned(items: Iterable[Item], evaluation: Mapping[str, frozenset[str]], count: Count) -> list[Item]:
    """The first row of every question that is answered in one way and is in none of the evaluation sets.

    `evaluation`: the normalised questions of each set. In the order of first appearance.
    """
    keys: dict[str, str] = {}  # of a question as it is written: repeats, of which there may be a hundred, cost nothing
    first: dict[str, Item] = {}
    answers: dict[str, set[str]] = {}
    rows: dict[str, int] = {}
    for item in items:
        count.read += 1
        if not (item.question and item.answer):
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
        found = [name for name, questions in evaluation.items() if key in questions]
        for name in found:
            count.by_set[name] += 1
        if found:
            count.evaluated += 1
        else:
            kept.append(item)
    count.written = len(kept)
    return kept
