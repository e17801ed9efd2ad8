"""What is told while things run: events of training, metrics by verl's names, what will run, the code."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from repro import paths
from repro import settings as settings_module
from repro.engine.crew import Event
from repro.engine.progress import Lines, Silence, Step, follow, metrics
from repro.pipeline import plan, run
from repro.pipeline.lock import md5
from repro.pipeline.stage import Stage, all_stages

SMOKE = settings_module.load(scale="smoke")


def test_training_tells_every_step_as_fields():
    """Two runs of 4 steps, one resumed at its third: 3 of 8 - 2 steps are done after the last event."""
    folders = [Path("a"), Path("b")]
    settings = SimpleNamespace(steps_of=lambda arm: 4)
    runs = [SimpleNamespace(arm="zvf", seed=seed, folder=at, settings=settings) for seed, at in enumerate(folders)]

    def event(folder, step, accuracy=None, measured=None):
        job = SimpleNamespace(checkpoints=SimpleNamespace(folder=folder))
        return Event(job, "step", (step, accuracy, measured or {}, {}))

    sent = [None, event(folders[0], 0, 0.25), event(folders[1], 2), event(folders[0], 1, None, {"kl": 0.5}), None]
    told = list(follow(runs, iter(sent)))
    assert [type(one) for one in told] == [Silence, Step, Step, Step, Silence]
    assert (told[0].doing, told[-1].doing) == ("starting the workers", "training")
    assert [(one.seed, one.step, one.accuracy) for one in told[1:4]] == [(0, 0, 0.25), (1, 2, None), (0, 1, None)]
    assert told[1].left is None and told[3].left >= 0 and told[3].measured == {"kl": 0.5}
    assert str(told[1]) == "zvf  seed 0  step   0/4  accuracy 0.250"


def test_a_line_is_printed_for_each_evaluation_and_after_thirty_seconds(monkeypatch):
    now, lines = [0.0], []
    monkeypatch.setattr("repro.engine.progress.time.monotonic", lambda: now[0])
    tell = Lines(lines.append)
    for second, event in (
        (1, Step("zvf", 0, 0, 9, 0.5)),
        (2, Step("zvf", 0, 1, 9)),
        (30, Silence(28.0, "training")),
        (31, Silence(29.0, "training")),
        (40, Step("zvf", 0, 2, 9)),
        (62, Step("zvf", 0, 3, 9, left=7.0)),
    ):
        now[0] = second
        tell(event)
    assert lines == [
        "zvf  seed 0  step   0/9  accuracy 0.500",
        "training, 29 s",
        "zvf  seed 0  step   3/9, about 7 s left",
    ]


def test_live_metrics_have_verls_names_and_leave_out_what_was_not_measured():
    measured = {"loss": 0.5, "gradient_norm": float("nan"), "response_tokens": 12, "reward": 0.25, "seed": 3}
    assert metrics(Step("zvf", 0, 1, 9, None, None, measured)) == {
        "actor/loss": 0.5,
        "critic/rewards/mean": 0.25,
        "response_length/mean": 12.0,
    }
    evaluated = metrics(Step("zvf", 0, 0, 9, 0.75, None, {}, {"samples": 4, "truncated": 0.5}))
    assert evaluated == {"val-core/heldout/acc/mean@4": 0.75, "val-aux/heldout/clip_ratio": 0.5}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Three stages, a chain, as dvc.lock has them; (stages, manifests)."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "MANIFESTS", tmp_path / "manifests")
    stages = [
        Stage("report", "zvf", ("results/train/zvf",), ("reports/arm-zvf.html",), {}),
        Stage("train", "zvf", ("results/policy/model",), ("results/train/zvf",), {}),
        Stage("policy", None, (), ("results/policy",), {}),
    ]
    for out in ("reports", "results/train/zvf", "results/policy", "manifests"):
        (tmp_path / out).mkdir(parents=True)
    (tmp_path / "reports/arm-zvf.html").touch()
    for stage in stages:
        (tmp_path / "manifests" / f"{stage.name}.json").write_text(stage.name)
    lock(tmp_path, stages)
    return stages, {stage.name: stage.name for stage in stages}


def lock(folder, stages, **outs):
    entries = {
        stage.address: {
            "deps": [{"path": f"build/manifests/{stage.name}.json", "md5": md5(stage.name)}],
            "outs": [{"path": out, "md5": outs.get(stage.kind, "as before")} for out in stage.outs],
        }
        for stage in stages
    }
    (folder / "dvc.lock").write_text(yaml.safe_dump({"stages": entries}))


def test_the_plan_is_what_changed_what_is_missing_and_what_follows_from_them(project, tmp_path):
    stages, manifests = project
    assert plan.will_run(stages, manifests) == []
    assert plan.will_run(stages, {**manifests, "train-zvf": "edited"}) == ["report-zvf", "train-zvf"]
    assert plan.will_run(stages, {**manifests, "report-zvf": "edited"}) == ["report-zvf"]
    (tmp_path / "results/policy").rmdir()
    assert plan.will_run(stages, manifests) == ["report-zvf", "train-zvf", "policy"]
    assert [stage.name for stage in plan.needed_for(["train@zvf"], stages)] == ["train-zvf", "policy"]
    assert plan.needed_for([], stages) == stages


def test_a_stage_starts_without_torch():
    """Whose import takes longer than most reports; kernels and workers import it where they need it."""
    code = "import sys, repro.pipeline.run; sys.exit(int('torch' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_stage_refuses_to_run_other_code_than_it_hashes(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "SOURCE", tmp_path / "src" / "repro")
    with pytest.raises(run.OtherCode, match=r"PYTHONPATH=\S*/src dvc repro"):
        run.run_stage(all_stages(SMOKE)[0], SMOKE)
