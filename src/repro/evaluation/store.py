"""Store each chunk of verified responses, so that an interrupted evaluation can be resumed."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from repro.errors import Refused, brief
from repro.files import read_parquet, write_json, write_parquet
from repro.stored import Amount, read_stored

REMEDY = "choose another --out, or delete that folder"
FACTS, RESPONSES, PARTS = "evaluation.json", "responses.parquet", "parts"
COLUMNS = ("id", "correct", "finished", "response_tokens")  # of the responses, that measures are made of
SECONDS = {"sample": Amount, "verify": Amount}


class OtherEvaluation(Refused, ValueError):
    """One sentence: the folder holds another evaluation than the requested one, and how they differ."""


class Store:
    """The folder of one data set's evaluation; None stores nothing.

    `facts` determine the responses. OtherEvaluation if the folder holds an evaluation with other facts, so that hours
    of sampling are neither mixed nor overwritten.
    """

    def __init__(self, folder: Path | None = None, facts: Mapping[str, Any] | None = None):
        self.folder, self._facts = folder, json.loads(json.dumps(facts or {}))
        if folder is None or not (folder / FACTS).exists():
            return
        stored = read_stored(folder / FACTS, REMEDY, dict[str, Any])
        for name in [*self._facts, *stored]:
            one, other = stored.get(name), self._facts.get(name)
            if one != other:
                raise OtherEvaluation(
                    f"{folder} holds another evaluation, with {name} {brief(one)} instead of {brief(other)}: choose "
                    "another --out, or delete that folder"
                )

    @property
    def complete(self) -> bool:
        """Whether an earlier run finished."""
        return self.folder is not None and (self.folder / RESPONSES).exists()

    def responses(self) -> pd.DataFrame | None:
        """All responses, if an earlier run finished."""
        path = self.folder / RESPONSES if self.folder and self.complete else None
        return read_parquet(path, "python -m repro.evaluation", COLUMNS) if path else None

    def read(self, start: int) -> tuple[pd.DataFrame, dict[str, float]] | None:
        """The responses of the chunk that starts at question `start`, and their seconds."""
        path = self.folder and self.folder / PARTS / f"{start:06d}.parquet"
        if not path or not path.exists():
            return None
        responses = read_parquet(path, "python -m repro.evaluation", COLUMNS)
        remedy = f"delete {path} and run `python -m repro.evaluation` again"
        return responses, read_stored(path.with_suffix(".json"), remedy, SECONDS)

    def write(self, start: int, responses: pd.DataFrame, seconds: Mapping[str, float]) -> None:
        """Write one chunk."""
        if self.folder is None:
            return
        write_json(self._facts, self.folder / FACTS)
        path = self.folder / PARTS / f"{start:06d}.parquet"
        write_json(seconds, path.with_suffix(".json"))
        write_parquet(responses, path)

    def finish(self, responses: pd.DataFrame) -> None:
        """Write all responses to one file and delete the chunks."""
        if self.folder is None:
            return
        write_json(self._facts, self.folder / FACTS)
        write_parquet(responses, self.folder / RESPONSES)
        shutil.rmtree(self.folder / PARTS, ignore_errors=True)
