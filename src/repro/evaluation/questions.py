"""Questions from the parquet that `repro.data` writes and verl reads, and their prompts as a model's tokens."""

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.errors import Refused


@dataclass(frozen=True)
class Question:
    """`messages`: the prompt as a chat; `answer`: the correct answer."""

    id: str
    data_source: str
    question: str
    answer: str
    messages: tuple[Mapping[str, str], ...]


class QuestionsMissing(Refused, OSError):
    """One sentence: which file of questions is missing or in another format, and the remedy."""


def load_questions(path: Path) -> list[Question]:
    """All rows of one file, in order. QuestionsMissing if there are none, or the format is different."""
    from pyarrow import ArrowInvalid, parquet

    path = Path(path)
    if not path.is_file():
        known = sorted(Path(each).stem for each in glob.glob(str(path.parent / "*.parquet")))
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
                row["reward_model"]["ground_truth"],
                tuple(row["prompt"]),
            )
            for row in rows
        ]
    except (ArrowInvalid, KeyError, TypeError) as error:
        raise QuestionsMissing(
            f"{path} is not in the format that `python -m repro.data prepare` writes ({type(error).__name__}: {error})"
        ) from error
    if len({question.id for question in questions}) != len(questions) or not questions:
        raise QuestionsMissing(f"{path} has no questions, or a duplicate id: prepare it again")
    return questions


def prompt_ids(tokenizer: Any, questions: Sequence[Question], template: Mapping[str, Any]) -> list[list[int]]:
    """ids_Q: each prompt in the tokenizer's chat template, up to the start of the answer; without a template, as for a
    base model, just the messages' text. `template`: options of the template (Qwen3's enable_thinking).
    """
    chats = bool(getattr(tokenizer, "chat_template", None))
    texts = []
    for question in questions:
        if chats:
            options = {"tokenize": False, "add_generation_prompt": True}
            texts.append(tokenizer.apply_chat_template(list(question.messages), **options, **template))
        else:
            texts.append("\n\n".join(message["content"] for message in question.messages) + "\n\n")
    # A chat template already includes the special tokens.
    return [list(ids) for ids in tokenizer(texts, add_special_tokens=not chats)["input_ids"]]
