"""One's own questions as verl's rows: a parquet in verl's format, or JSON lines with `prompt` and `answer`."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from repro.data.clean import contradictory, keys_of, told_of
from repro.data.formats import truth
from repro.evaluation.questions import Question, messages, prompt_ids
from repro.files import read_parquet
from repro.settings import SettingsError
from repro.verl import sums

HELD_OUT = 0.05  # of the training questions, where no validation data are given
MOST_HELD_OUT = 64


def load(source: str, ours: bool = True) -> list[dict[str, Any]]:
    """The rows of a file, or the sums. SettingsError, with the line, where one is in neither format. Every row gets its
    place as `extra_info.index`, by which the tables name it. `ours`: no reward function of one's own judges, so an
    answer is text or a number that a response can match; of GSM8K's whole working it is what follows `####`."""
    if source == sums.SOURCE:
        return sums.rows()
    path = Path(source)
    if not path.is_file():
        raise SettingsError(f"there is no file {source}: give a parquet in verl's format, a .jsonl, or the word `sums`")
    if path.suffix == ".parquet":
        rows = read_parquet(path, "your own pipeline").to_dict("records")
        if not rows:
            raise SettingsError(f"{path} has no rows: give it one for each question")
        return [_parquet_row(row, index, path, ours) for index, row in enumerate(rows)]
    try:
        text = path.read_text(encoding="utf-8-sig")
        lines = [line for line in text.split("\n") if line.strip()]  # JSON's texts may hold what splitlines splits at
    except ValueError as error:
        raise SettingsError(f"{path} is neither parquet nor UTF-8: {error}") from None
    rows = [_json_row(line, index, path, ours) for index, line in enumerate(lines)]
    if not rows:
        raise SettingsError(f"{path} is empty: give it a line for each question")
    return rows


def checked(source: str, ours: bool = True) -> list[dict[str, Any]]:
    """`load`, without the rows of questions that have different answers, where our judge judges. What is odd is
    printed; SettingsError where nothing is left."""
    rows = load(source, ours)
    keys_N = keys_of(map(asked, rows))
    answers_N = [str(row["reward_model"]["ground_truth"]) for row in rows] if ours else None
    doubtful = set(contradictory(keys_N, answers_N)) if ours else set()
    for each in told_of(keys_N, answers_N):
        print(f"{source}: {each}")
    if len(doubtful) == len(rows):
        raise SettingsError(f"{source}: every question has different answers: mend them")
    if doubtful:
        print(f"{source}: the {len(doubtful)} rows with different answers are left out")
    return _numbered([row for place, row in enumerate(rows) if place not in doubtful]) if doubtful else rows


def asked(row: Mapping[str, Any]) -> str:
    """What a row asks: all that its user says."""
    said = [message["content"] for message in row["prompt"] if message["role"] == "user"]
    return "\n".join(said or [row["prompt"][-1]["content"]])


def tell_of_trained(train: Sequence[Mapping[str, Any]], held_out: Sequence[Mapping[str, Any]]) -> None:
    """Print how many held-out questions are trained on."""
    trained, held = set(keys_of(map(asked, train))), keys_of(map(asked, held_out))
    if both := sum(key in trained for key in held):
        print(f"{both} of {len(held)} held-out questions are trained on too: on them accuracy is of the training")


def _parquet_row(row: dict[str, Any], index: int, path: Path, ours: bool) -> dict[str, Any]:
    judged, given = row.get("reward_model"), row.get("extra_info")
    try:
        prompt = messages(row.get("prompt"))
    except TypeError:
        prompt = ()
    if not isinstance(judged, Mapping) or judged.get("ground_truth") is None or not prompt:
        raise SettingsError(
            f"{path}, row {index}: verl's format has `prompt` (messages) and `reward_model.ground_truth` in every row"
        )
    if ours:
        try:
            text = truth(judged["ground_truth"])
            judged = {**judged, "ground_truth": text} if isinstance(judged["ground_truth"], str) else judged
        except (TypeError, ValueError) as error:
            raise SettingsError(
                f"{path}, row {index}: `reward_model.ground_truth` is text or a number ({error}): mend or drop the row"
            ) from None
    extra = {**(given if isinstance(given, Mapping) else {}), "index": index}
    return {"data_source": path.stem, **row, "reward_model": judged, "prompt": list(prompt), "extra_info": extra}


def _json_row(line: str, index: int, path: Path, ours: bool) -> dict[str, Any]:
    try:
        entry = json.loads(line)
        prompt, answer, source = entry["prompt"], entry["answer"], entry.get("data_source", path.stem)
        chat = messages([{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt)
        if isinstance(answer, bool) or not isinstance(answer, str | int | float) or not str(answer).strip():
            raise TypeError("`answer` is text or a number")
        if isinstance(answer, float) and not math.isfinite(answer):
            raise ValueError("`answer` is no finite number")
        answer = truth(str(answer)) if ours else str(answer)
        if not chat[-1]["content"].strip():
            raise ValueError("`prompt` is empty")
        if not isinstance(source, str):
            raise TypeError("`data_source` is text")
        line.encode(), chat[-1]["content"].encode(), answer.encode()  # half a character cannot be written
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"[:200]
        raise SettingsError(
            f"{path}, line {index + 1}: give a JSON object with `prompt` and `answer` ({why})"
        ) from None
    return {
        "data_source": source,
        "prompt": list(chat),
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {"index": index, "id": f"{path.stem}-{index}", "question": chat[-1]["content"]},
    }


def split(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(training, held out): every n-th question is held out, `HELD_OUT` of them and at most `MOST_HELD_OUT`. A question
    is its normalised text (repro.data.clean), so that one that is asked in several rows is on one side: held out, its
    first row stands for it."""
    keys_N = keys_of(map(asked, rows))
    first = {key: place for place, key in reversed(list(enumerate(keys_N)))}
    distinct = sorted(first, key=first.__getitem__)
    count = max(1, min(MOST_HELD_OUT, round(HELD_OUT * len(distinct))))
    held = set(distinct[:: max(2, len(distinct) // count)][:count])
    train = [row for row, key in zip(rows, keys_N, strict=True) if key not in held]
    if repeats := len(rows) - len(train) - len(held):
        print(f"{repeats} of {len(rows)} rows ask a held-out question once more and are left out")
    if not train:
        raise SettingsError("the data ask one question, and none is left to train on: give more, or --validation FILE")
    return _numbered(train), _numbered([rows[place] for place in sorted(first[key] for key in held)])


def short_enough(
    rows: Sequence[dict[str, Any]], tokenizer: Any, limit: int, template: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Those whose prompt has at most `limit` tokens in the chat template with its options; verl would cut others."""
    lengths = [len(ids) for ids in prompts_of(tokenizer, rows, template)]
    kept = [row for row, length in zip(rows, lengths, strict=True) if length <= limit]
    if len(kept) < len(rows):
        print(f"{len(rows) - len(kept)} of {len(rows)} prompts are longer than {limit} tokens and left out")
    if not kept:
        raise SettingsError(f"every prompt is longer than data.max_prompt_length={limit}: raise it")
    return kept


def prompts_of(tokenizer: Any, rows: Sequence[Mapping[str, Any]], template: Mapping[str, Any]) -> list[list[int]]:
    """ids_Q: each row's prompt as training asks it (repro.verl.text_agent, where the model has no chat template)."""
    return prompt_ids(tokenizer, [question_of(row) for row in rows], template, end="")


def question_of(row: Mapping[str, Any]) -> Question:
    """A row as a question to sample and verify."""
    extra, truth = row["extra_info"], str(row["reward_model"]["ground_truth"])
    identity, asked = str(extra.get("id") or extra["index"]), extra.get("question") or ""
    return Question(identity, row["data_source"], asked, truth, tuple(map(dict, row["prompt"])))


def _numbered(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "extra_info": {**row["extra_info"], "index": index}} for index, row in enumerate(rows)]
