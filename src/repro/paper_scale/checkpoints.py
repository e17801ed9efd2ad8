"""The checkpoints of a run at a paper scale, on the scale's validation sets, and a run's headlines."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from repro.files import read_parquet
from repro.paper_scale.schema import PaperScale
from repro.verl import checkpoints
from repro.verl.checkpoints import Begun, Job, as_begun
from repro.verl.peaks import SOURCES, peaks


def jobs(scale: PaperScale, folder: Path, data: Path, samples: int, steps: Sequence[int] | None = None) -> list[Job]:
    """The jobs of a run's checkpoints, all or those of `steps`: its validation sets, sampled as the run samples them,
    with what was overridden."""
    sets, length = tuple(scale.validation_data.value), scale.max_response_tokens.value
    how = as_begun(folder, Begun(0, sets, length, scale.temperature.value, scale.top_p.value, {}))
    files = [data / f"{Path(file).stem}.parquet" for file in how.files]
    more = ("--verifiers", "8")
    return checkpoints.jobs(folder, folder / "evaluation", files, how, samples, steps=steps, more=more)


def table_of(folder: Path, listed: Sequence[Job], seed: int) -> pd.DataFrame:
    """The evaluations of `listed`, as one table, and as sources.parquet beside them."""
    sets = list(dict.fromkeys(job.data for job in listed))
    return checkpoints.table_of(folder, folder / "evaluation", seed, sets)


def peaks_of(folders: Sequence[Path]) -> pd.DataFrame:
    """Peak accuracy, its step and what had been spent by then, of each data set and seed (repro.verl.peaks)."""
    parts = [read_parquet(folder / "tables" / f"{SOURCES}.parquet", "launch/run.sh") for folder in folders]
    return peaks(pd.concat(parts, ignore_index=True))
