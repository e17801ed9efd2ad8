r"""Unusual column formats, one small function each: from the value in a row to a question or answer as plain text.

An answer is the content of `\boxed{}`: no dollar signs, no working, no thousands commas.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from repro.data.answers import BOX, content_of, matchable
from repro.errors import brief

DAPO_BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
DAPO_AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'


def plain(value: Any) -> str:
    """Text, stripped; a whole number without a fraction (27.0 becomes 27); "" for a missing value or NaN. TypeError for
    what is neither, ValueError for infinity, and for half a character, which no file can hold."""
    if value is None or value != value:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(f"{type(value).__name__} where text is expected")
    if isinstance(value, float) and math.isinf(value):
        raise ValueError("a number that is infinite, or too large")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip()
    text.encode()
    return text


def undollared(value: Any) -> str:
    """The text without dollar signs, if they enclose all of it."""
    text = plain(value)
    inner = text.strip("$")
    return inner.strip() if text != inner and "$" not in inner else text


def boxed(solution: Any) -> str:
    r"""The content of the last `\boxed{…}`, braces balanced; the whole text if there is none or it is not closed."""
    text = plain(solution)
    boxes = [*BOX.finditer(text)]
    return (content_of(text, boxes[-1].end())[0] if boxes else "").strip() or text


def whole_number(solution: Any) -> str:
    """AIME and AMC: an integer, boxed or bare, in its plain form (025 becomes 25; 27.0 and 27^\\circ become 27, since
    in some copies of AIME 2025 an answer has degrees)."""
    text = boxed(solution)
    match = re.fullmatch(r"(\d+)(?:\.0*)?(?:\^\{?\\circ\}?)?", text)
    return str(int(match[1])) if match else text


def after_hashes(answer: Any) -> str:
    """GSM8K: the number after the last `####`, without thousands commas; "" without the mark."""
    _, mark, number = plain(answer).rpartition("####")
    return number.strip().replace(",", "") if mark else ""


def truth(value: Any) -> str:
    """A correct answer as text; from GSM8K's whole working the number after `####`. TypeError or ValueError for what no
    response can match."""
    text = plain(value)
    text = after_hashes(text) if "####" in text else text
    if not matchable(text):
        raise ValueError(f"no response can match the answer {brief(text)}")
    return text


def bare_dapo_question(prompt: Sequence[Mapping[str, str]]) -> str:
    """DAPO-Math: the user's last message without the instructions before and after the question."""
    text = plain([message["content"] for message in prompt if message["role"] == "user"][-1])
    return text.strip().removeprefix(DAPO_BEFORE.strip()).removesuffix(DAPO_AFTER.strip()).strip()


def ground_truth(reward_model: Mapping[str, Any]) -> str:
    """verl's format: the answer inside `reward_model`."""
    return plain(reward_model["ground_truth"])


def index_of(extra_info: Mapping[str, Any]) -> str:
    """verl's format: the id inside `extra_info`."""
    return plain(extra_info["index"])


def joined(final_answer: Sequence[Any] | str | None) -> str:
    """OlympiadBench: a list of answers, usually one, each possibly between dollar signs."""
    if final_answer is None or isinstance(final_answer, str):
        return undollared(final_answer)
    return ", ".join(undollared(answer) for answer in final_answer)


def in_context(context: Any, question: Any) -> str:
    """OlympiadBench: a question's context is in a separate column, usually empty."""
    return "\n".join(part for part in (plain(context), plain(question)) if part)
