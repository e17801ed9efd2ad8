"""What a run is begun with apart from its settings: its data, its model and the profile that its plan is made from, as
hashes in section `repro`.

A file or a folder of another name may hold the same, and one of the same name another; so a resumed run compares these
(repro.verl.composed), and paths may change.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from repro.evaluation.model import WEIGHTS
from repro.protocol.profile import Profile
from repro.settings.arm import ProfileUse

DIGITS = 16
PLACES, BLOCK = 256, 4096  # of each file of weights: 16 GB take too long to read, and training moves every tensor


def identified(config: Any, rows: Sequence[Sequence[Mapping[str, Any]]], model: Path | str) -> None:
    """Write `repro.data`, of the training and the validation rows, and `repro.model` into verl's configuration."""
    from omegaconf import OmegaConf

    for key, value in (("data", hash_rows(*rows)), ("model", hash_weights(Path(model)))):
        OmegaConf.update(config, f"repro.{key}", value, force_add=True)


def profiled(config: Any, profile: Profile | None, use: ProfileUse | None) -> None:
    """Write `repro.profiled`, of the profile that the plan is made from, into verl's configuration; null where the arm
    needs none. ProfileError where it has fewer samples than the arm uses."""
    from omegaconf import OmegaConf

    value = hash_profile(profile.first(use.samples)) if use and profile else None
    OmegaConf.update(config, "repro.profiled", value, force_add=True)


def hash_profile(profile: Profile) -> str:
    """Hash of a profile's samples, those that the plan and the ledger read: another arm may add to a folder's."""
    digest = hashlib.sha256(repr(profile.correct_Q_K.shape).encode())
    for array in (profile.correct_Q_K, profile.response_tokens_Q_K, profile.prompt_tokens_Q):
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return digest.hexdigest()[:DIGITS]


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
