"""Our own word problems in GSM8K's format: a question, and an answer of worked lines that ends in `#### 42`."""

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

from repro.tasks.queries import Query

FAMILY = "word problems"
MARK = "####"
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def load_word_problems(path: Path | None = None) -> list[dict[str, str]]:
    """The problems, each {"question", "answer"}; `path`: another file of this format, such as GSM8K itself.

    ValueError names the first line that is not in this format.
    """
    source = path or resources.files("repro.tasks") / "word_problems.jsonl"
    problems = []
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            problem = json.loads(line)
            if {*problem} < {"question", "answer"} or final_number(problem["answer"]) is None:
                raise ValueError("a question and an answer that ends in '#### ' and a number are needed")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{source}, line {number}: {error}") from error
        problems.append(problem)
    return problems


def final_number(answer: str) -> float | None:
    """The number after the last `####` of a reference answer; None if there is none."""
    _, mark, tail = answer.rpartition(MARK)
    return to_number(tail) if mark else None


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


def to_number(text: str) -> float | None:
    """A text that is a single number, with or without thousands commas; None for any other."""
    return _plain(text.strip()) if NUMBER.fullmatch(text.strip()) else None


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
