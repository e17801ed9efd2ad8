"""Questions from the parquet that `repro.data` writes and verl reads, and their prompts as a model's tokens."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.data.clean import keys_of, told_of
from repro.data.formats import truth
from repro.errors import Refused

BLANK = "\n\n"


@dataclass(frozen=True)
class Question:
    """`messages`: the prompt as a chat; `answer`: the correct answer."""

    id: str
    data_source: str
    question: str
    answer: str
    messages: tuple[Mapping[str, str], ...]


class NoChat(Refused, ValueError):
    """One sentence: which prompt the model's chat template fails on."""


class QuestionsMissing(Refused, OSError):
    """One sentence: which file of questions is missing or in another format, and the remedy."""


def load_questions(path: Path) -> list[Question]:
    """All rows of one file, in order. QuestionsMissing if there are none, or the format is different."""
    from pyarrow import ArrowException, parquet

    path = Path(path)
    if not path.is_file():
        known = sorted(each.stem for each in path.parent.glob("*.parquet"))
        there = f"; {path.parent} holds {', '.join(known)}" if known else ""
        raise QuestionsMissing(
            f"there is no {path}{there}: `python -m repro.data prepare {path.stem} --out {path.parent}` makes it"
        )
    try:
        rows = parquet.read_table(path).to_pylist()
        questions = [
            Question(
                row["extra_info"]["id"],
                row["data_source"],
                row["extra_info"]["question"],
                truth(row["reward_model"]["ground_truth"]),
                messages(row["prompt"]),
            )
            for row in rows
        ]
        if any(not isinstance(part, str) for each in questions for part in (each.id, each.data_source, each.question)):
            raise TypeError("id, data_source and question are text")
    except (OSError, ArrowException, KeyError, TypeError, ValueError) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise QuestionsMissing(
            f"{path} is not in the format that `python -m repro.data prepare` writes ({why})"
        ) from error
    if len({question.id for question in questions}) != len(questions) or not questions:
        raise QuestionsMissing(f"{path} has no questions, or a duplicate id: prepare it again")
    keys_N = keys_of(question.question for question in questions)
    for each in told_of(keys_N, [question.answer for question in questions]):
        print(f"{path}: {each}")
    return questions


def plain(chat: Iterable[Mapping[str, str]]) -> str:
    """The text of a prompt's messages, for a model without a chat template."""
    return BLANK.join(message["content"] for message in chat)


def messages(prompt: Any) -> tuple[Mapping[str, str], ...]:
    """A prompt as a chat, at least one message; TypeError if it is none."""
    found = tuple(prompt) if isinstance(prompt, Iterable) and not isinstance(prompt, str | Mapping) else ()
    for message in found or [None]:
        if not isinstance(message, Mapping) or not all(isinstance(message.get(k), str) for k in ("role", "content")):
            raise TypeError("a prompt is a list of messages, each with the texts `role` and `content`")
    return tuple(dict(message) for message in found)


def prompt_ids(
    tokenizer: Any, questions: Sequence[Question], template: Mapping[str, Any], end: str = BLANK
) -> list[list[int]]:
    """ids_Q: each prompt in the tokenizer's chat template, up to the start of the answer; without a template, as for a
    base model, just the messages' text and `end`. `template`: options of the template (Qwen3's enable_thinking).
    """
    chats = bool(getattr(tokenizer, "chat_template", None))
    texts = []
    for question in questions:
        if chats:
            options = {**template, "tokenize": False, "add_generation_prompt": True}
            try:
                texts.append(tokenizer.apply_chat_template(list(question.messages), **options))
            except Exception as error:  # of the template, a program that came with the model
                why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                raise NoChat(f"the model's chat template does not take {question.id} ({why}): mend either") from error
        else:
            texts.append(plain(question.messages) + end)
    # A chat template already includes the special tokens.
    return [list(ids) for ids in tokenizer(texts, add_special_tokens=not chats)["input_ids"]]
