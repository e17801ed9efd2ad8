"""A run's headlines: peaks by data set, the best checkpoint, every checkpoint evaluated."""

from pathlib import Path

import pandas as pd
import pytest

from repro.files import write_parquet
from repro.paper_scale import SCALES
from repro.paper_scale.__main__ import main
from repro.paper_scale.checkpoints import jobs, peaks_of
from repro.paper_scale.overrides import folder_of
from repro.settings import SettingsError
from repro.verl import checkpoints
from repro.verl.best import keep_if_best, known
from repro.verl.checkpoints import work

SCALE = SCALES["paper-qwen3-8b"]


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


def test_every_checkpoint_is_merged_and_evaluated_on_every_set(tmp_path, monkeypatch):
    with pytest.raises(SettingsError, match="holds no checkpoint to evaluate"):
        jobs(SCALE, tmp_path, tmp_path, 32)
    for step in (30, 40):
        checkpoint(tmp_path / "checkpoints", step)
    checkpoint(tmp_path / "best", 20)
    (tmp_path / "merged/global_step_30").mkdir(parents=True)
    (tmp_path / "merged/global_step_30/config.json").touch()
    listed = jobs(SCALE, tmp_path, Path("data"), 32)
    sets = SCALE.validation_data.value
    assert [(job.step, job.data) for job in listed] == [(step, name) for step in (20, 30, 40) for name in sets]
    assert {job.step for job in listed if job.merge is None} == {30}
    assert str(tmp_path / "best/global_step_20/actor") in listed[0].merge
    assert "4096" in listed[0].evaluate and "32" in listed[0].evaluate
    assert "--template" not in listed[0].evaluate
    (tmp_path / "verl.yaml").write_text(
        "data: {apply_chat_template_kwargs: {enable_thinking: false}, max_response_length: 512, val_files: [x/a.pq]}\n"
        "actor_rollout_ref: {rollout: {temperature: 1.0, val_kwargs: {temperature: 0.6, top_p: 0.9}}}\n"
    )
    as_trained = jobs(SCALE, tmp_path, Path("data"), 32)[0].evaluate
    said = dict(zip(as_trained[3::2], as_trained[4::2], strict=True))
    assert as_trained[2] == str(Path("data/a.parquet")) and said["--template"] == '{"enable_thinking": false}'
    assert (said["--max-new-tokens"], said["--temperature"], said["--top-p"]) == ("512", "0.6", "0.9")
    with pytest.raises(SettingsError, match="no checkpoint of step 50, but of 20, 30, 40"):
        jobs(SCALE, tmp_path, Path("data"), 32, [50])

    ran = []

    def run(command, device):
        ran.append((command[0], device))
        if command[0] == "verl.model_merger":
            Path(command[-1]).mkdir()

    monkeypatch.setattr(checkpoints, "_run", run)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    work(listed, 2)
    merges, samples = ran[:2], ran[2:]
    assert merges == [("verl.model_merger", None)] * 2
    assert sorted(path.name for path in (tmp_path / "merged").iterdir()) == [f"global_step_{n}" for n in (20, 30, 40)]
    assert len(samples) == 3 * len(sets) and {device for _, device in samples} <= {"0", "1"}


def test_peaks_and_the_tokens_until_then(tmp_path, capsys):
    folder = folder_of(SCALE, "grpo", 0, tmp_path)
    rows = [
        {"seed": 0, "step": step, "source": source, "questions": 30, "samples": 32, "accuracy": accuracy}
        | {"standard_error": 0.05, "generated_tokens": 10 * step, "trained_tokens": step, "paper_tokens": 2 * step}
        | {"flops": 1e12 * step}
        for source, curve in {"aime24": (0.1, 0.3, 0.3), "gsm8k": (0.5, 0.6, 0.9)}.items()
        for step, accuracy in zip((0, 20, 40), curve, strict=True)
    ]
    write_parquet(pd.DataFrame(rows), folder / "tables/sources.parquet")
    table = peaks_of([folder]).set_index("source")
    assert table["step"].to_dict() == {"aime24": 20, "gsm8k": 40}
    assert table.loc["aime24", ["accuracy", "trained_tokens", "paper_tokens"]].tolist() == [0.3, 20, 40]
    assert main(["peaks", SCALE.name, "grpo", "--runs", str(tmp_path)]) == 0
    assert "| aime24" in capsys.readouterr().out
    checkpoint(folder / "checkpoints", 40)
    assert main(["evaluate", SCALE.name, "grpo", "--runs", str(tmp_path), "--check"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("python -m verl.model_merger merge --backend fsdp") and len(told) == 5
