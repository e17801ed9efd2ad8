"""Clean a training set: drop unusable rows, repeats, contradictions, and questions of the evaluation sets."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def keys_of(questions_N: Iterable[str]) -> list[str]:
    """`normalise` of each; a text that is repeated, as some are a hundred times, is normalised once."""
    known: dict[str, str] = {}
    return [known.get(text) or known.setdefault(text, normalise(text)) for text in questions_N]


def contradictory(keys_N: Sequence[str], answers_N: Iterable[str]) -> list[int]:
    """The rows of questions that are asked with different answers, spaces aside."""
    given: dict[str, set[str]] = {}
    for key, answer in zip(keys_N, answers_N, strict=True):
        given.setdefault(key, set()).add("".join(answer.split()))
    return [row for row, key in enumerate(keys_N) if len(given[key]) > 1]


def told_of(keys_N: Sequence[str], answers_N: Sequence[str] | None) -> list[str]:
    """What its user should know of a set of questions, a sentence each: repeats, and different answers if given."""
    told, repeats = [], len(keys_N) - len(set(keys_N))
    doubtful = contradictory(keys_N, answers_N) if answers_N is not None else []
    if repeats:
        told.append(
            f"{repeats} of {len(keys_N)} rows repeat a question, in this or other typesetting; it counts as often"
        )
    if doubtful:
        rows = [row for row in doubtful if keys_N[row] == keys_N[doubtful[0]]][:5]
        told.append(f"{len(doubtful)} rows ask a question with different answers, as rows {rows} do: mend or drop them")
    return told


def usable(items: Iterable[Item], count: Count) -> Iterator[Item]:
    """The items with a question and an answer; all are written, unless `cleaned` counts fewer."""
    for item in items:
        count.read += 1
        if item.question and matchable(item.answer):
            count.written += 1
            yield item
        else:
            count.unusable += 1


def cleaned(items: Iterable[Item], evaluation: Mapping[str, frozenset[str]], count: Count) -> list[Item]:
    """The first row of every question with a single answer that is in no evaluation set, in order of appearance.

    `evaluation`: the normalised questions of each set.
    """
    keys: dict[str, str] = {}  # by verbatim question, so that the many repeats are normalised only once
    first: dict[str, Item] = {}
    answers: dict[str, set[str]] = {}
    rows: dict[str, int] = {}
    for item in usable(items, count):
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
