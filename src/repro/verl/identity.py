"""What a run is begun with beside its settings: its data and its model, as hashes in section `repro`.

A file or a folder of another name may hold the same, and one of the same name another; so a resumed run compares these
(repro.verl.composed), and paths may change.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from repro.evaluation.model import WEIGHTS

DIGITS = 16
PLACES, BLOCK = 256, 4096  # of each file of weights: 16 GB take too long to read, and training moves every tensor


def identified(config: Any, rows: Sequence[Sequence[Mapping[str, Any]]], model: Path | str) -> None:
    """Write `repro.data`, of the training and the validation rows, and `repro.model` into verl's configuration."""
    from omegaconf import OmegaConf

    for key, value in (("data", hash_rows(*rows)), ("model", hash_weights(Path(model)))):
        OmegaConf.update(config, f"repro.{key}", value, force_add=True)


def hash_rows(*parts: Sequence[Mapping[str, Any]]) -> str:
    """Hash of rows in verl's format, in order."""
    content = json.dumps([list(part) for part in parts], sort_keys=True, default=_plain)
    return hashlib.sha256(content.encode()).hexdigest()[:DIGITS]


def hash_weights(folder: Path) -> str:
    """Hash of a model's weights: each file's size and `PLACES` blocks spread over it, all of a small file."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in WEIGHTS for path in folder.glob(pattern)):
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode())
        with path.open("rb") as file:
            for start in range(0, size, max(BLOCK, size // PLACES)):
                file.seek(start)
                digest.update(file.read(BLOCK))
    return digest.hexdigest()[:DIGITS]


def _plain(value: Any) -> Any:
    """Arrays and scalars of numpy, as pandas reads them from parquet; the rest by its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
