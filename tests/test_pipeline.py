"""The whole pipeline at scale `smoke`: what it makes, twice the same, through a kill, and what an edit reruns."""

import contextlib
import json
import os
import re
import signal
import time

import pandas as pd
import psutil
import pytest
from conftest import Project

pytestmark = pytest.mark.slow

SAMPLER = '''"""Short responses only."""

import numpy as np

from repro.rollouts import Rollouts


def shortest(rollouts: Rollouts, progress: float, rng: np.random.Generator, *, share: float = 0.5) -> Rollouts:
    """The `share` of rollouts with the fewest tokens."""
    return rollouts.take(np.argsort(rollouts.costs_N, kind="stable")[: max(1, int(share * len(rollouts)))])
'''
ARM = """  shortest:
    title: Shortest half
    about: Trains on the shorter half of the batch.
    samplers: [shortest]

task:
"""


def test_every_stage_leaves_its_data_and_its_report(smoke):
    arms = ["grpo", "cost-aware", "random-subset"]
    reports = {path.name for path in (smoke.folder / "reports").glob("*.html")}
    assert reports == {"theory-sgd.html", "policy.html", "results.html", *(f"arm-{arm}.html" for arm in arms)}
    for path in (smoke.folder / "reports").glob("*.html"):
        page = path.read_text()
        assert len(page) < 1_000_000 and not re.search(r"(src|href)=[\"']https?:", page), path.name
    for arm in arms:
        steps = pd.read_parquet(smoke.folder / f"results/train/{arm}/steps.parquet")
        assert steps.groupby("seed")["step"].apply(list).to_dict() == {0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}
        assert (steps.groupby("seed")["rollouts"].last() == 4 * 32).all()
    metrics = json.loads((smoke.folder / "metrics.json").read_text())
    assert set(metrics) == set(arms) and metrics["grpo"]["difference"] == 0
    assert (smoke.folder / "figures/accuracy.svg").exists() and (smoke.folder / "tables/trained_tokens.md").exists()


def test_arms_start_from_the_same_evaluation(smoke):
    first = {
        arm: pd.read_parquet(smoke.folder / f"results/train/{arm}/evaluations.parquet").query("step == 0")
        for arm in ("grpo", "cost-aware")
    }
    assert first["grpo"]["accuracy"].tolist() == first["cost-aware"]["accuracy"].tolist()


def test_nothing_to_do_takes_under_five_seconds(smoke):
    started = time.monotonic()
    output = smoke.run("dvc", "repro")
    seconds = time.monotonic() - started
    assert "up to date" in output and "Running" not in output
    assert seconds < 5, f"a no-op dvc repro took {seconds:.1f} s"


def test_a_killed_run_resumes_and_a_second_run_gives_the_same_bits(smoke, tmp_path):
    second = Project(tmp_path / "second")
    second.edit("params.yaml", "max_new_tokens: 96", "max_new_tokens: 95")  # back below: the kill must not be cached
    second.edit("params.yaml", "max_new_tokens: 95", "max_new_tokens: 96")
    process = second.start("dvc", "repro", "train@cost-aware")
    checkpoints = second.folder / "build/checkpoints/train-cost-aware"
    _wait_for(lambda: any(checkpoints.rglob("state.pt")), process, second)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    started = time.monotonic()
    while left := _processes_in(second.folder):
        assert time.monotonic() - started < 30, f"still running after the kill: {left}"
        time.sleep(0.2)
    kept = sorted(path.parent.name for path in checkpoints.rglob("*.pt"))
    assert kept and not list(second.folder.rglob("results/train/cost-aware/*.parquet"))
    second.run("dvc", "repro", "--force", "manifest")
    second.run("dvc", "repro")
    assert second.data_hashes() == smoke.data_hashes()
    assert not checkpoints.exists() or not any(checkpoints.iterdir())  # safe in results/, so let go


def test_an_edit_to_plotting_trains_nothing_and_says_why(smoke):
    smoke.edit("src/repro/plots/training.py", "held-out accuracy (pass@1)", "held-out accuracy")
    output = smoke.run("dvc", "repro", "--dry")
    assert not re.search(r"Running stage '(train|policy|theory)", output), output
    why = ("python", "-m", "repro.pipeline", "why")
    assert "runs again because src/repro/plots/training.py changed" in smoke.run(*why, "results")
    assert "will not run for its settings or code" in smoke.run(*why, "train@grpo")
    smoke.edit("src/repro/plots/training.py", '"held-out accuracy"', '"held-out accuracy (pass@1)"')
    assert "up to date" in smoke.run("dvc", "repro")


def test_a_new_sampler_is_one_file_and_one_entry_and_shows_up_everywhere(smoke):
    assert len((SAMPLER + ARM).splitlines()) <= 30
    (smoke.folder / "src/repro/samplers/shortest.py").write_text(SAMPLER)
    smoke.edit("params.yaml", "task:\n", ARM)
    output = smoke.run("dvc", "repro")
    ran = set(re.findall(r"Running stage '([^']+)'", output))
    assert ran == {"manifest", "train@shortest", "report@shortest", "results"}, ran
    assert "Shortest half" in (smoke.folder / "tables/trained_tokens.md").read_text()
    assert "Shortest half" in (smoke.folder / "reports/results.html").read_text()
    steps = pd.read_parquet(smoke.folder / "results/train/shortest/steps.parquet")
    assert (steps["selected_rollouts"].dropna() == 16).all() and not steps["skipped"].all()


def test_a_misspelt_arm_stops_before_anything_runs(smoke):
    smoke.edit("params.yaml", "samplers: [random_subset]", "samplers: [random_subst]")
    output = smoke.run("dvc", "repro", ok=False)
    smoke.edit("params.yaml", "samplers: [random_subst]", "samplers: [random_subset]")
    assert "did you mean 'random_subset'?" in output and "Traceback" not in output
    assert re.findall(r"Running stage '([^']+)'", output) == ["manifest"]


def test_a_failing_notebook_fails_its_stage_and_leaves_the_error_to_read(smoke):
    data = smoke.folder / "results/train/grpo/evaluations.parquet"
    whole = data.read_bytes()
    data.write_bytes(whole[:100])
    output = smoke.run("python", "-m", "repro.pipeline", "run", "report", "grpo", ok=False)
    data.write_bytes(whole)
    assert (
        "cannot be read" in output and "dvc repro train@grpo" in output and "Traceback" not in output.splitlines()[-1]
    )
    assert "cannot be read" in (smoke.folder / "build/executed/report-grpo.ipynb").read_text()


def test_the_usual_dvc_commands_work(smoke):
    smoke.commit("smoke results")
    assert "accuracy" in smoke.run("dvc", "metrics", "show")
    smoke.run("dvc", "metrics", "diff")
    assert "index.html" in smoke.run("dvc", "plots", "show")
    assert "train@grpo" in smoke.run("dvc", "dag")


def _processes_in(folder) -> list[str]:
    """Command lines of the processes that work in `folder`."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd().startswith(str(folder)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
    return found


def _wait_for(condition, process, project: Project, seconds: float = 240) -> None:
    started = time.monotonic()
    while not condition():
        assert process.poll() is None, (project.folder / "log.txt").read_text()[-3000:]
        assert time.monotonic() - started < seconds, "no checkpoint came"
        time.sleep(0.05)
