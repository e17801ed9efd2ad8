"""An evaluation under way: each chunk of responses is kept once it is verified, so that the same command goes on."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from repro.files import read_parquet, write_json, write_parquet

FACTS, RESPONSES, PARTS = "evaluation.json", "responses.parquet", "parts"


class OtherEvaluation(ValueError):
    """One sentence: what the folder holds differs from what is asked for, and in what."""


class Kept:
    """The folder of one data set's evaluation; None for one that keeps nothing.

    `facts` are all that the responses follow from. OtherEvaluation where the folder holds one of other facts: hours of
    sampling are neither mixed nor overwritten.
    """

    def __init__(self, folder: Path | None = None, facts: Mapping[str, Any] | None = None):
        self.folder, self._facts = folder, json.loads(json.dumps(facts or {}))
        if folder is None or not (folder / FACTS).exists():
            return
        found = json.loads((folder / FACTS).read_text())
        for name in [*self._facts, *found]:
            one, other = found.get(name), self._facts.get(name)
            if one != other:
                raise OtherEvaluation(
                    f"{folder} holds another evaluation, of {name} {one!r} where {other!r} is asked for: choose "
                    "another --out, or delete that folder"
                )

    @property
    def complete(self) -> bool:
        """Whether an earlier run came to its end."""
        return self.folder is not None and (self.folder / RESPONSES).exists()

    def whole(self) -> pd.DataFrame | None:
        """All responses, where an earlier run came to its end."""
        return read_parquet(self.folder / RESPONSES, "python -m repro.evaluation") if self.complete else None

    def part(self, start: int) -> tuple[pd.DataFrame, dict[str, float]] | None:
        """The responses of the chunk that begins at question `start`, and their seconds."""
        path = self.folder and self.folder / PARTS / f"{start:06d}.parquet"
        if not path or not path.exists():
            return None
        return read_parquet(path, "python -m repro.evaluation"), json.loads(path.with_suffix(".json").read_text())

    def keep(self, start: int, responses: pd.DataFrame, seconds: Mapping[str, float]) -> None:
        """Write one chunk."""
        if self.folder is None:
            return
        write_json(self._facts, self.folder / FACTS)
        path = self.folder / PARTS / f"{start:06d}.parquet"
        write_json(seconds, path.with_suffix(".json"))
        write_parquet(responses, path)

    def finish(self, responses: pd.DataFrame) -> None:
        """All of it in one file, in place of the parts."""
        if self.folder is None:
            return
        write_json(self._facts, self.folder / FACTS)
        write_parquet(responses, self.folder / RESPONSES)
        shutil.rmtree(self.folder / PARTS, ignore_errors=True)
