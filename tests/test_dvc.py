"""DVC's everyday commands on a clone without results, as README and docs/data.md have them: scale smoke, one stage."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from conftest import ROOT, Project

from repro import settings as settings_module
from repro.experiments.results.figures import headlines
from repro.stats.efficiency import summarise

STAGE = "theory@subset"
TRIALS = "scales.smoke.theory.subset.n_trials"
IN_GIT = ("metrics.json", "tables", "figures")


@pytest.fixture(scope="module")
def origin(tmp_path_factory) -> Project:
    """A project in which one stage has run, its data and report pushed to a folder."""
    project = Project(tmp_path_factory.mktemp("origin"))
    for name in IN_GIT:
        source, target = ROOT / name, project.folder / name
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    project.run("dvc", "repro", STAGE)
    project.run("dvc", "remote", "add", "--default", "published", str(project.folder.parent / "published"))
    project.commit("one stage")
    project.run("dvc", "push")
    return project


class Clone(Project):
    """A clone whose commands find the code of the original first, as where that one is installed."""

    def __init__(self, origin: Project, folder: Path):
        self.folder, self.origin = folder, origin
        origin.git("clone", "-q", str(origin.folder), str(folder))

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "PYTHONPATH": str(self.origin.folder / "src")}


@pytest.fixture
def clone(origin, tmp_path) -> Clone:
    return Clone(origin, tmp_path / "clone")


def test_the_headlines_are_few_and_those_of_the_runs_in_git():
    """metrics.json and tables/curves.csv are what tables/evaluations.parquet gives, at the scale of the study."""
    settings = settings_module.load(scale="cpu")
    evaluations = pd.read_parquet(ROOT / "tables/evaluations.parquet")
    metrics = json.loads((ROOT / "metrics.json").read_text())
    summary = summarise(evaluations, None, settings).set_index("arm", drop=False)
    made = headlines(summary.reset_index(drop=True), evaluations, settings)
    [expected], [stored] = (pd.json_normalize(figures).to_dict("records") for figures in (made, metrics))
    assert stored == pytest.approx(expected, abs=1e-5) and 8 <= len(stored) <= 14
    curves = pd.read_csv(ROOT / "tables/curves.csv")
    assert curves.groupby("arm")["share"].nunique().nunique() == 1
    last = curves.groupby("arm")["accuracy"].last()
    assert last.to_dict() == pytest.approx(summary["accuracy"].to_dict(), abs=1e-5)


@pytest.mark.slow
def test_metrics_params_and_plots_answer_on_a_clone(clone):
    shown = clone.run("dvc", "metrics", "show")
    assert "baseline.final_accuracy" in shown and max(map(len, shown.splitlines())) < 300
    [now] = re.findall(r'"significantly_higher": (\d+)', (clone.folder / "metrics.json").read_text())
    clone.edit("metrics.json", f'"significantly_higher": {now}', '"significantly_higher": 33')
    assert re.search(rf"arms\.significantly_higher +{now} +33 +{33 - int(now)}", clone.run("dvc", "metrics", "diff"))
    clone.edit("params.yaml", "n_trials: 10", "n_trials: 11")
    changed = clone.run("dvc", "params", "diff").splitlines()
    assert len(changed) >= 2 and all("n_trials" in line for line in changed[1:])
    clone.run("dvc", "plots", "show")
    page = (clone.folder / "dvc_plots/index.html").read_text()
    assert '"cost-aware"' in page and "trained_tokens" in page and page.count("<img") >= 4


@pytest.mark.slow
def test_what_would_run_is_told_on_a_clone(clone):
    """DVC's own --dry needs the data that stages read, or --force."""
    plan = clone.run("python", "-m", "repro.pipeline", "plan", "train@zvf").splitlines()
    assert [line.split()[0] for line in plan[:3]] == ["policy", "profile", "train@zvf"]
    assert plan[3].startswith("3 of 3 stages")
    dry = clone.run("dvc", "repro", "--dry", "--force", "train@zvf")
    assert re.findall(r"Running stage '(\S+)'", dry) == ["manifest", "policy", "profile", "train@zvf"]


@pytest.mark.slow
def test_results_and_reports_come_from_a_folder(clone):
    clone.run("dvc", "pull", STAGE)
    assert (clone.folder / "reports/theory-subset.html").stat().st_size > 10_000
    assert list((clone.folder / "results/theory/subset").glob("*.parquet"))
    assert "everything is up to date" in clone.run("python", "-m", "repro.pipeline", "plan", STAGE)
    clone.run("dvc", "repro", "manifest")
    assert "Running stage" not in clone.run("dvc", "repro", "--dry", STAGE)
    clone.edit("src/repro/theory/subset.py", "import numpy as np", "import numpy as np\n\nEDITED = 1")
    assert clone.run("python", "-m", "repro.pipeline", "plan", STAGE).startswith(STAGE)


@pytest.mark.slow
def test_an_experiment_apart_runs_its_own_code_and_is_shown(clone):
    """In a copy of DVC's, and with the code there: the edit to the sources is in what is recorded."""
    clone.edit("src/repro/theory/subset.py", "import numpy as np", "import numpy as np\n\nprint('edited')")
    output = clone.run("dvc", "exp", "run", "--temp", "--name", "mine", "-S", f"{TRIALS}=11", STAGE)
    assert "theory-subset: stage 1 of 1" in output and "edited" in output
    assert not (clone.folder / "results").exists()
    shown = clone.run("dvc", "exp", "show", "--only-changed", "--md", "--no-pager")
    row = next(line for line in shown.splitlines() if "mine" in line)
    assert TRIALS in shown and re.search(r"\| +11 +\|", row) and len(row) < 400
    assert TRIALS in clone.run("dvc", "params", "diff", "HEAD", "mine")
