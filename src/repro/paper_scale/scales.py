"""The papers' tables, read from configs/papers/scales, and as DataFrames to look at."""

from pathlib import Path

import pandas as pd
from pydantic import ValidationError

from repro.errors import brief
from repro.files import Unreadable
from repro.paper_scale.schema import Paper, PaperScale
from repro.paths import CONFIGS
from repro.settings.errors import SettingsError, nearest
from repro.settings.text import read_mapping

FILES = sorted((CONFIGS / "papers" / "scales").glob("*.yaml"))


def read(path: Path) -> tuple[Paper, list[PaperScale]]:
    """A paper's table and its scales; Unreadable, in one sentence, if the file is cut or no such table."""
    try:
        paper = Paper.model_validate(read_mapping(path))
        return paper, paper.build()
    except (ValidationError, TypeError) as error:  # the latter where what should be merged is no mapping
        first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
        why = " ".join([*map(str, first["loc"]), first["msg"]])
        raise Unreadable(
            f"{path} holds no scales of a paper ({why}): restore the file, as with `git checkout`"
        ) from None


_READ = {path.stem: read(path) for path in FILES}
PAPERS: dict[str, Paper] = {stem: paper for stem, (paper, _) in _READ.items()}
SCALES: dict[str, PaperScale] = {scale.name: scale for _, scales in _READ.values() for scale in scales}


def find(name: str) -> PaperScale:
    """The scale of that name; SettingsError with the nearest name if there is none."""
    if name not in SCALES:
        raise SettingsError(f"there is no paper scale {brief(name)}{nearest(name, SCALES)}")
    return SCALES[name]


def values_table(scale: PaperScale) -> pd.DataFrame:
    """setting, value, source, why: every value of a scale, and the entries of its table that verl has no option for."""
    rows = [(name, _shown(entry.value), entry.source, entry.why) for name, entry in scale.values.items()]
    rows += [(name, "–", "paper", f"{scale.table}; {treatment}") for name, treatment in scale.aside.items()]
    return pd.DataFrame(rows, columns=["setting", "value", "source", "why"])


def sizes_table() -> pd.DataFrame:
    """A row per scale: the sizes, and how many of its values the paper gives."""
    rows = [
        {
            "scale": name,
            "paper": f"{scale.paper}, {scale.table}",
            "model": scale.model.value,
            "prompts × rollouts": f"{scale.train_batch.value} × {scale.group_size.value}",
            "mini-batch": scale.minibatch.value,
            "longest response": scale.max_response_tokens.value,
            "steps": scale.steps,
            "values from the paper": sum(entry.source == "paper" for entry in scale.values.values()),
            "values": len(scale.values),
        }
        for name, scale in SCALES.items()
    ]
    return pd.DataFrame(rows)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
