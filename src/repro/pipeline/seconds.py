"""What each stage took, by scale: here when it last ran; before that, on another machine (configs/seconds.json)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from repro import paths
from repro.files import read_json, write_json

TABLE = paths.CONFIGS / "seconds.json"  # {scale: {stage: seconds}}; `python -m repro.pipeline seconds` writes it
OWN = paths.BUILD / "seconds.json"  # the same, of this machine


def known_seconds(scale: str) -> dict[str, float]:
    """{stage: seconds} at a scale."""
    return _noted(TABLE).get(scale, {}) | _noted(OWN).get(scale, {})


def needed_by(stages: Sequence[str], known: Mapping[str, float]) -> tuple[float, bool]:
    """(seconds for the stages, whether every one of them could be estimated). A stage that has not run yet takes the
    mean of its kind."""
    kinds: dict[str, list[float]] = {}
    for name, seconds in known.items():
        kinds.setdefault(_kind(name), []).append(seconds)
    estimates = [known.get(name, mean(kinds.get(_kind(name), [0.0]))) for name in stages]
    return sum(estimates), all(_kind(name) in kinds for name in stages)


def note(scale: str, stage: str, seconds: float) -> None:
    """Keep what a stage took here."""
    known = _noted(OWN)
    write_json(known | {scale: known.get(scale, {}) | {stage: round(seconds, 1)}}, OWN)


def keep_seconds() -> dict[str, int]:
    """Put what stages took here into the table in git; {scale: how many stages}."""
    table = _noted(TABLE)
    for scale in _noted(OWN):
        table[scale] = dict(sorted(known_seconds(scale).items()))
    write_json(table, TABLE)
    return {scale: len(seconds) for scale, seconds in table.items()}


def in_words(seconds: float) -> str:
    """`40 s`, `12 min`, `1 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _noted(path: Path) -> dict[str, dict[str, float]]:
    return read_json(path, "delete it: it only tells how long things take") if path.exists() else {}


def _kind(name: str) -> str:
    return name.partition("-")[0]
