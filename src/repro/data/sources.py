"""The data sets: location, columns, and how to extract a question and its answer from a row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from repro.data.formats import (
    after_hashes,
    bare_dapo_question,
    ground_truth,
    in_context,
    index_of,
    joined,
    plain,
    undollared,
    whole_number,
)
from repro.errors import Refused, brief


@dataclass(frozen=True)
class Field:
    """The value that `read` computes from some columns of a row."""

    columns: tuple[str, ...]
    read: Callable[..., str] = plain

    def of(self, row: Mapping[str, Any]) -> str:
        return self.read(*(row[column] for column in self.columns))


def field(*columns: str, read: Callable[..., str] = plain) -> Field:
    return Field(columns, read)


@dataclass(frozen=True)
class DataSet:
    """One split of one data set.

    hub       id on the Hugging Face hub
    files     pattern of the split's files there; they are read in the order of their names
    split     upstream's name of the split
    rows      number of rows upstream when this table was written; a different number is reported, not rejected
    identity  upstream's id, if it has one
    trains    whether it is for training, and therefore cleaned (`repro.data.clean`), or for evaluation, and unchanged
    """

    hub: str
    files: str
    split: str
    rows: int
    question: Field
    answer: Field
    identity: Field | None = None
    trains: bool = False

    @property
    def columns(self) -> list[str]:
        """All columns that are read."""
        fields = (self.question, self.answer, *([self.identity] if self.identity else []))
        return list(dict.fromkeys(column for each in fields for column in each.columns))


SOURCES = {
    # Almost every question occurs a hundred times: 17,398 wordings, seven of them with two answers.
    "dapo-math-17k": DataSet(
        "BytedTsinghua-SIA/DAPO-Math-17k",
        "data/*.parquet",
        "train",
        1_791_700,
        field("prompt", read=bare_dapo_question),
        field("reward_model", read=ground_truth),
        field("extra_info", read=index_of),
        trains=True,
    ),
    "deepscaler": DataSet(
        "agentica-org/DeepScaleR-Preview-Dataset",
        "deepscaler.json",
        "train",
        40_315,
        field("problem"),
        field("answer", read=undollared),
        trains=True,
    ),
    "gsm8k-train": DataSet(
        "openai/gsm8k",
        "main/train-*.parquet",
        "train",
        7_473,
        field("question"),
        field("answer", read=after_hashes),
        trains=True,
    ),
    # The problem set that Cost-Aware Learning cites (Veeraboina, 2023), in the columns of its CSV.
    "aime-1983-2024": DataSet(
        "gneubig/aime-1983-2024",
        "*.csv",
        "train",
        933,
        field("Question"),
        field("Answer", read=whole_number),
        field("ID"),
    ),
    # D³S cites these three by their hub ids.
    "aime24": DataSet(
        "math-ai/aime24",
        "test*.parquet",
        "test",
        30,
        field("problem"),
        field("solution", read=whole_number),
        field("id"),
    ),
    "aime25": DataSet(
        "math-ai/aime25", "test.jsonl", "test", 30, field("problem"), field("answer", read=whole_number), field("id")
    ),
    "amc23": DataSet(
        "math-ai/amc23",
        "test*.parquet",
        "test",
        40,
        field("question"),
        field("answer", read=whole_number),
        field("id"),
    ),
    "math500": DataSet(
        "HuggingFaceH4/MATH-500", "test.jsonl", "test", 500, field("problem"), field("answer"), field("unique_id")
    ),
    "gsm8k": DataSet(
        "openai/gsm8k", "main/test-*.parquet", "test", 1_319, field("question"), field("answer", read=after_hashes)
    ),
    "minerva-math": DataSet(
        "math-ai/minervamath", "test.jsonl", "test", 272, field("question"), field("answer", read=undollared)
    ),
    # Open-ended, text only, mathematics, English, competitions: the part with text answers that rules can verify.
    "olympiadbench": DataSet(
        "Hothan/OlympiadBench",
        "OlympiadBench/OE_TO_maths_en_COMP/*.parquet",
        "train",
        674,
        field("context", "question", read=in_context),
        field("final_answer", read=joined),
        field("id"),
    ),
}

# The training and evaluation sets of each paper. Our assumptions where a paper leaves it open: D³S's MATH is MATH-500,
# and Cost-Aware Learning's AMC, for which it cites a wiki, is D³S's.
SUITES = {
    "cost-aware-learning": ("dapo-math-17k", "aime-1983-2024", "amc23", "math500", "gsm8k"),
    "d3s": ("deepscaler", "aime24", "aime25", "amc23", "gsm8k", "math500", "minerva-math", "olympiadbench"),
}


class UnknownData(Refused, ValueError):
    """One sentence: which name is no data set's, and those that are."""


def names_of(chosen: list[str]) -> list[str]:
    """Data sets by name, suites expanded, without duplicates; ValueError for an unknown name."""
    for name in chosen:
        if name not in SOURCES and name not in SUITES:
            raise UnknownData(f"there is no data set {brief(name)}: choose from {', '.join([*SOURCES, *SUITES])}")
    return list(dict.fromkeys(each for name in chosen for each in SUITES.get(name, (name,))))
