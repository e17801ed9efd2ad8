"""DVC's everyday commands on a clone without results, as README and docs/data.md have them: scale smoke, one stage."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from conftest import ROOT, Project, copy_project

from repro import settings as settings_module
from repro.experiments.results.save import headlines
from repro.stats.efficiency import summarise

STAGE = "theory@subset"
TRIALS = "scales.smoke.theory.subset.n_trials"


@pytest.fixture(scope="module")
def origin(tmp_path_factory, tools) -> Project:
    """A project in which one stage has run, its data and report pushed to a folder."""
    project = Project(tmp_path_factory.mktemp("origin"), tools=tools, panels=False)
    copy_project(project.folder, ("metrics.json", "tables", "figures"))
    project.run("dvc", "repro", STAGE)
    project.run("dvc", "remote", "add", "--local", "--default", "published", str(project.folder.parent / "published"))
    project.commit("one stage")
    project.run("dvc", "push")
    return project


class Clone(Project):
    """A clone whose commands find the code of the original first, as where that one is installed."""

    def __init__(self, origin: Project, folder: Path):
        self.folder, self.tools, self.origin = folder, origin.tools, origin
        origin.git("clone", "-q", str(origin.folder), str(folder))

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "PYTHONPATH": str(self.origin.folder / "src")}


@pytest.fixture
def clone(origin, tmp_path) -> Clone:
    return Clone(origin, tmp_path / "clone")


def documented() -> list[list[str]]:
    """The words of every `dvc` command in a block of README or docs/data.md."""
    texts = [(ROOT / page).read_text() for page in ("README.md", "docs/data.md")]
    blocks = [found for text in texts for found in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)]
    shell = "".join(block for language, block in blocks if not language)
    lines = [shlex.split(line, comments=True) for line in shell.splitlines() if "dvc " in line]
    return [line[line.index("dvc") + 1 :] for line in lines if "dvc" in line]


def parts(words: list[str]) -> tuple[list[str], set[str]]:
    """What a command of DVC's is called, and its options: (["exp", "run"], {"--temp", "-S"})."""
    length = 2 if words[0] in ("metrics", "params", "plots", "exp", "remote") else 1
    return words[:length], {word for word in words if word.startswith("-")}


def test_every_command_that_is_documented_is_tried():
    """With its options, in a call of `Project.run`, here or in the test of the pipeline."""
    sources = "".join((ROOT / "tests" / name).read_text() for name in ("test_dvc.py", "test_pipeline.py"))
    calls = [re.findall(r'"([^"]+)"', call) for call in re.findall(r'\.run\("dvc", ([^)]*)\)', sources)]
    tried = [parts(call) for call in calls]
    assert len(documented()) >= 11
    for words in documented():
        name, options = parts(words)
        assert any(name == called and options <= given for called, given in tried), f"dvc {' '.join(words)}"


@pytest.mark.slow
def test_the_commits_that_are_named_differ_from_this_one(tmp_path):
    compared = [words for words in documented() if re.fullmatch(r"\w+ diff [0-9a-f]{7}", " ".join(words))]
    assert {words[0] for words in compared} == {"metrics", "params"}
    for *_, commit in compared:
        if subprocess.run(["git", "cat-file", "-e", commit], cwd=ROOT, capture_output=True).returncode:
            pytest.skip(f"commit {commit} is not here: a shallow clone has no history")
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tmp_path / "clone")], check=True)
    for words in compared:
        shown = subprocess.run(["dvc", *words], cwd=tmp_path / "clone", capture_output=True, text=True, check=True)
        assert len(shown.stdout.splitlines()) >= 2, f"dvc {' '.join(words)} says nothing"


def test_the_headlines_are_few_and_those_of_the_runs_in_git():
    """metrics.json and tables/curves.csv are what tables/evaluations.parquet gives, at the scale of the study."""
    settings = settings_module.load(scale="cpu")
    evaluations = pd.read_parquet(ROOT / "tables/evaluations.parquet")
    metrics = json.loads((ROOT / "metrics.json").read_text())
    family = [arm for arm in settings.compared_arms if arm in set(evaluations["arm"])]  # one just added has no runs yet
    summary = summarise(evaluations, None, settings, family).set_index("arm", drop=False)
    made = headlines(summary.reset_index(drop=True), evaluations, settings)
    [expected], [stored] = (pd.json_normalize(figures).to_dict("records") for figures in (made, metrics))
    assert stored == pytest.approx(expected, abs=1e-5) and 12 <= len(stored) <= 18
    assert stored["of.budget"] == "64 steps" and stored["of.rate"] == settings.engine.learning_rate
    curves = pd.read_csv(ROOT / "tables/curves.csv")
    assert curves.groupby("arm")["share"].nunique().nunique() == 1
    last = curves.groupby("arm")["accuracy"].last()
    assert last.to_dict() == pytest.approx(summary["accuracy"].to_dict(), abs=1e-5)


@pytest.mark.slow
def test_metrics_params_and_plots_answer_on_a_clone(clone):
    shown = clone.run("dvc", "metrics", "show")
    assert "baseline.final_accuracy" in shown and max(map(len, shown.splitlines())) < 360  # what they are of, too
    [now] = re.findall(r'"higher": (\d+)', (clone.folder / "metrics.json").read_text())
    clone.edit("metrics.json", f'"higher": {now}', '"higher": 33')
    assert re.search(rf"arms\.higher +{now} +33 +{33 - int(now)}", clone.run("dvc", "metrics", "diff"))
    clone.edit("params.yaml", "n_trials: 10", "n_trials: 11")
    changed = clone.run("dvc", "params", "diff").splitlines()
    assert len(changed) >= 2 and all("n_trials" in line for line in changed[1:])
    clone.run("dvc", "plots", "show")
    page = (clone.folder / "dvc_plots/index.html").read_text()
    assert '"cost-aware"' in page and "trained_tokens" in page and page.count("<img") >= 4


@pytest.mark.slow
def test_what_would_run_is_told_on_a_clone(clone):
    """DVC's own --dry needs the data that stages read, or --force."""
    plan = clone.run("python", "-m", "repro.pipeline", "plan", "report@zvf").splitlines()
    assert [line.split()[0] for line in plan[:2]] == ["policy", "report@zvf"]
    assert plan[2].startswith("2 of 2 stages")
    dry = clone.run("dvc", "repro", "--dry", "--force", "report@zvf")
    assert re.findall(r"Running stage '(\S+)'", dry) == ["manifest", "policy", "report@zvf"]


@pytest.mark.slow
def test_results_and_reports_come_from_a_folder(clone):
    folder = clone.origin.folder.parent / "published"
    clone.run("dvc", "remote", "add", "--local", "--default", "published", str(folder))
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
    assert "theory-subset: runs " in output and "edited" in output
    assert not (clone.folder / "results").exists()
    shown = clone.run("dvc", "exp", "show", "--only-changed", "--md", "--no-pager")
    row = next(line for line in shown.splitlines() if "mine" in line)
    assert TRIALS in shown and re.search(r"\| +11 +\|", row) and len(row) < 400
    shown = clone.run("dvc", "exp", "show", "--only-changed", "--keep", "difference", "--md", "--no-pager").splitlines()
    names = [name.strip() for name in shown[0].split("|")]
    metrics = json.loads((clone.folder / "metrics.json").read_text())["difference"]
    assert [name for name in names if "difference" in name] == [f"difference.{arm}" for arm in metrics]
    assert TRIALS in names and len(names) <= 8 + len(metrics)  # of more than 800
    assert TRIALS in clone.run("dvc", "params", "diff", "HEAD", "mine")
    clone.git("checkout", "--", "src")
    applied = clone.run("dvc", "exp", "apply", "mine", ok=False)  # whose other stages' data is nowhere
    assert "Checkout failed" in applied and "n_trials: 11" in (clone.folder / "params.yaml").read_text()
