"""Running a stage: a kernel that does not start is tried again, a notebook that fails is not."""

import json
import subprocess
import sys
from pathlib import Path

import papermill
import pytest
from test_notebook_checks import CHECKS, executed

from repro import settings as settings_module
from repro.notebook import failed
from repro.pipeline import run
from repro.pipeline.__main__ import main
from repro.pipeline.stage import stage

SETTINGS = settings_module.load(scale="smoke")


@pytest.fixture
def attempts(monkeypatch, tmp_path):
    """Calls of papermill, which fails as the list it is given says; nothing else of the stage happens."""
    calls, failures = [], []

    def execute(source, target, **options):
        calls.append(options["parameters"])
        if failures:
            raise failures.pop(0)
        Path(target).write_text('{"cells": []}')

    monkeypatch.setattr(papermill, "execute_notebook", execute)
    monkeypatch.setattr(run, "end_with", lambda owner, cleanup: None)
    monkeypatch.setattr(run.paths, "EXECUTED", tmp_path / "executed")
    monkeypatch.setattr(run, "LAST_RUN", tmp_path / "last")
    return calls, failures


def test_a_kernel_that_does_not_start_is_tried_again(attempts, capsys):
    calls, failures = attempts
    failures += [RuntimeError("Kernel died before replying to kernel_info")] * 2
    run.run_stage(stage("report", SETTINGS, "grpo"), SETTINGS)
    assert len(calls) == 3 and calls[0]["arm"] == "grpo" and calls[0]["scale"] == "smoke"
    assert capsys.readouterr().out.count("did not start, trying again") == 2


def test_a_stage_names_the_checks_that_fail(attempts, monkeypatch, capsys):
    made = executed(*CHECKS)
    assert failed(made) == ["it-fails"]
    monkeypatch.setattr(
        papermill, "execute_notebook", lambda source, target, **options: Path(target).write_text(json.dumps(made))
    )
    run.run_stage(stage("report", SETTINGS, "grpo"), SETTINGS)
    lines = [line for line in capsys.readouterr().out.splitlines() if "check" in line]
    assert lines == ["report-grpo: check 'it-fails' fails: rewrite the sentence above it in the notebook"]


def test_a_failing_cell_is_not_tried_again(attempts):
    calls, failures = attempts
    failures.append(papermill.PapermillExecutionError(3, 2, "x = 1/0", "ZeroDivisionError", "division by zero", []))
    with pytest.raises(run.StageFailed, match="ZeroDivisionError: division by zero"):
        run.run_stage(stage("report", SETTINGS, "grpo"), SETTINGS)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["run", "report", "grop"], "there is no arm 'grop' in params.yaml; did you mean 'grpo'?"),
        (["run", "reprot", "grpo"], "there is no stage 'reprot'; did you mean 'report'?"),
        (["run", "policy", "grpo"], "stage policy takes no item"),
        (["why", "report@grpo", "zvf"], "report@grpo names its item: leave out zvf"),
    ],
)
def test_a_misspelt_stage_or_item_is_one_sentence(command, sentence, capsys):
    assert main(command) == 1
    printed = capsys.readouterr().err
    assert sentence in printed and len(printed.splitlines()) == 1


DVC = """
import os, subprocess, sys, time
os.environ["DVC_STAGE"] = "policy"
inner = subprocess.Popen(["/bin/sh", "-c", f"{sys.executable} {sys.argv[1]}; true"])
print(os.getpid(), flush=True)
time.sleep(60)
"""
STAGE = """
import sys, time
from repro.pipeline import run
from repro.engine.workers import end_with

owner = run.pipeline_process()
print(owner, flush=True)
end_with(owner, lambda: print("ended", flush=True))
time.sleep(60)
"""


def test_a_stage_ends_with_its_dvc_though_the_shell_between_them_stays(tmp_path):
    (tmp_path / "dvc").write_text(DVC)
    (tmp_path / "stage.py").write_text(STAGE)
    command = [sys.executable, str(tmp_path / "dvc"), str(tmp_path / "stage.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as dvc:
        assert [dvc.stdout.readline() for _ in range(2)] == [f"{dvc.pid}\n"] * 2
        dvc.kill()
        dvc.wait()
        assert dvc.stdout.readline() == "ended\n"
