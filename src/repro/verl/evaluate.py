"""`python -m repro.verl.evaluate MODEL DATA.parquet --out FOLDER`: `repro.evaluation` as a run on verl trains.

The rows of one file are in verl's format, with or without ids; prompts are written as in training, and `--reward JSON`,
verl's `reward.custom_reward_function`, judges in place of math-verify. The options are those of `repro.evaluation`.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from repro.data.verify import Verdict, Verifier
from repro.errors import command
from repro.evaluation.__main__ import Prompted, parse, run
from repro.evaluation.model import model_folder, tokenizer_of
from repro.evaluation.questions import Question
from repro.evaluation.run import Judge, by_answer
from repro.files import read_parquet
from repro.settings import SettingsError
from repro.verl.data import query_name
from repro.verl.identity import hash_rows
from repro.verl.judged import judge
from repro.verl.questions import prompts_of, question_of

Rows = Sequence[Mapping[str, Any]]


@command(name="repro.verl.evaluate", interrupted="interrupted; the same command resumes after the last chunk")
def main(arguments: list[str]) -> None:
    """The command line."""
    ours = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    ours.add_argument("--reward", type=json.loads)
    mine, others = ours.parse_known_args(arguments)
    chosen = parse(others)
    if len(chosen.data) > 1:
        raise SettingsError(f"one file at a time, not {chosen.data[1]} too")
    rows, questions = read_rows(chosen.data[0])
    folder = model_folder(chosen.model, chosen.dtype)
    tokenizer = tokenizer_of(folder)
    sets = {chosen.data[0].stem: Prompted(questions, prompts_of(tokenizer, rows, chosen.template))}
    if mine.reward is None:
        with Verifier(chosen.verifiers) as verifier:
            run(chosen, folder, tokenizer, sets, by_answer(verifier))
        return
    with judge(mine.reward) as correct:
        row_of = {question.id: row for question, row in zip(questions, rows, strict=True)}
        run(chosen, folder, tokenizer, sets, by_row(correct, row_of), reward=mine.reward, rows=hash_rows(rows))


def read_rows(path: Path) -> tuple[Rows, list[Question]]:
    """The rows of a parquet in verl's format as they are, and as questions: by the names that the run's tables have, or
    by their place too where two have the same."""
    columns = ["data_source", "prompt", "reward_model", "extra_info"]
    rows = read_parquet(path, "your own pipeline", columns).to_dict("records")
    names = [str(query_name(row["data_source"], row["extra_info"])) for row in rows]
    if len(set(names)) < len(names):
        names = [f"{name} in row {place}" for place, name in enumerate(names)]
    return rows, [replace(question_of(row), id=name) for name, row in zip(names, rows, strict=True)]


def by_row(correct: Any, row_of: Mapping[str, Mapping[str, Any]]) -> Judge:
    """The verdicts of a reward function, which is given a question's row."""

    def verdicts(texts_N: Sequence[str], asked_N: Sequence[Question]) -> list[Verdict]:
        found_N = correct(texts_N, [row_of[question.id] for question in asked_N])
        return [Verdict("equal" if right else "different") for right in found_N]

    return verdicts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
