"""Our own word problems in GSM8K's format: a question, and an answer of worked lines that ends in `#### 42`."""

import json
import re
from importlib import resources
from typing import Any

from repro.tasks.queries import Query

FAMILY = "word problems"
MARK = "####"
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def load_word_problems() -> list[dict[str, str]]:
    """The problems, each {"question", "answer"}."""
    text = (resources.files("repro.tasks") / "word_problems.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def final_number(answer: str) -> float | None:
    """The number after the last `####` of a reference answer; None if there is none."""
    _, mark, tail = answer.rpartition(MARK)
    return _plain(tail.strip()) if mark and NUMBER.fullmatch(tail.strip()) else None


def answered_number(response: str) -> float | None:
    """The number that a response gives: the first one after its first `####`; without such a mark or a number after
    it, the last number of the response; None if the response has no number.

    The fallback is lenient on purpose: a small model often solves a problem and forgets the mark.
    """
    head, _, tail = response.partition(MARK)
    numbers = NUMBER.findall(tail)
    if numbers:
        return _plain(numbers[0])
    numbers = NUMBER.findall(head)
    return _plain(numbers[-1]) if numbers else None


def score_word_problem(response: str, answer: str) -> float:
    """1.0 if the response's number is that of the reference answer, else 0.0."""
    return float(answered_number(response) == final_number(answer))


def on_one_line(answer: str) -> str:
    """A reference answer as a few-shot example, its lines joined: a response ends at its first newline."""
    return " ".join(line.strip() for line in answer.splitlines())


def word_problem_queries(problems: list[dict[str, str]], prompt: Any) -> list[Query]:
    """The problems as queries; `prompt(question)` is the model's input."""
    return [Query(prompt(entry["question"]), entry["answer"], FAMILY, entry) for entry in problems]


def _plain(number: str) -> float:
    return float(number.replace(",", ""))
