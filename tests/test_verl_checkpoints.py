"""A run's checkpoints and headlines: the best one kept, the peaks."""

from pathlib import Path

import pandas as pd
import pytest

from repro.files import write_parquet
from repro.settings import SettingsError
from repro.verl.__main__ import main
from repro.verl.best import LAST, LATEST, keep_if_best, known, mend_latest


def checkpoint(folder: Path, step: int) -> Path:
    path = folder / f"global_step_{step}"
    (path / "actor").mkdir(parents=True)
    (path / "actor" / "weights.pt").write_text(str(step))
    return path


def test_the_best_checkpoint_outlives_the_last_ones(tmp_path):
    run = tmp_path / "seed-0"
    for step, accuracy, kept in ((10, 0.2, True), (20, 0.5, True), (30, 0.5, False), (40, 0.4, False)):
        path = checkpoint(run / "checkpoints", step)
        assert keep_if_best(path, run, "aime24", accuracy, step) == kept
    for path in (run / "checkpoints").iterdir():
        (path / "actor/weights.pt").unlink()  # as verl does
    assert known(run) == {"source": "aime24", "accuracy": 0.5, "step": 20}
    assert [path.name for path in (run / "best").glob("global_*")] == ["global_step_20"]
    assert (run / "best/global_step_20/actor/weights.pt").read_text() == "20"
    assert not keep_if_best(run / "checkpoints/global_step_50", run, "aime24", 0.9, 50)  # nothing was saved there


def test_a_name_that_was_cut_off_is_that_of_the_last_whole_checkpoint(tmp_path):
    for step in (9, 10):
        (checkpoint(tmp_path, step) / LAST).touch()
    checkpoint(tmp_path, 20)
    for before, after in (("9", "9"), ("", "10")):
        (tmp_path / LATEST).write_text(before)
        mend_latest(tmp_path)
        assert (tmp_path / LATEST).read_text() == after


def test_peaks_of_every_seed_and_the_tokens_until_then(tmp_path, capsys):
    for seed in (0, 1):
        rows = [
            {"seed": seed, "step": step, "source": source, "questions": 30, "samples": 32, "accuracy": accuracy}
            | {"standard_error": 0.05, "generated_tokens": 10 * step, "trained_tokens": step, "paper_tokens": 2 * step}
            | {"flops": 1e12 * step}
            for source, curve in {"aime24": (0.1, 0.3, 0.3), "gsm8k": (0.5, 0.6, 0.9)}.items()
            for step, accuracy in zip((0, 20, 40), curve, strict=True)
        ]
        write_parquet(pd.DataFrame(rows), tmp_path / f"seed-{seed}/tables/sources.parquet")
    for folder, seeds in ((tmp_path, 2), (tmp_path / "seed-1", 1)):
        main(["--peaks", str(folder)])
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()]
        table = [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]
        assert [(row["source"], row["step"]) for row in table] == [("aime24", "20")] * seeds + [("gsm8k", "40")] * seeds
        assert (table[0]["accuracy"], table[0]["trained_tokens"], table[0]["paper_tokens"]) == ("0.300", "20", "40")
    with pytest.raises(SettingsError, match="holds no run that was evaluated"):
        main(["--peaks", str(tmp_path / "nothing")])
