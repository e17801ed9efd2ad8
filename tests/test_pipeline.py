"""The whole pipeline at scale `smoke`: what it makes, twice the same, and what an edit reruns."""

import hashlib
import json
import re
import resource
import shutil
from html import unescape
from pathlib import Path

import pandas as pd
import pytest
import test_edits
from conftest import ARMS, ON_VERL, PAGES_ON_PANELS, ROOT, Project, complaints

from repro.engine.checkpoint import FINISHED, Checkpoints
from repro.experiments.parity.summary import batches_agree
from repro.policy.shipped import FOLDERS

pytestmark = pytest.mark.slow

SAMPLER = '''"""Short responses only."""

import numpy as np

from repro.methods.rollouts import Rollouts


def shortest(rollouts: Rollouts, progress: float, rng: np.random.Generator, *, share: float = 0.5) -> Rollouts:
    """The `share` of rollouts with the fewest tokens.

    >>> same = dict(group_N=[0, 0], rewards_N=[1, 0], advantages_N=[1, -1], prompt_tokens_N=[4, 4])
    >>> shortest(Rollouts.from_batch(**same, response_tokens_N=[9, 5]), 0.0, None).row_N
    array([1])
    """
    return rollouts.take(np.argsort(rollouts.costs_N, kind="stable")[: max(1, int(share * len(rollouts)))])
'''
ARM = """  shortest:
    group: Controls
    title: Shortest half
    about: Trains on the shorter half of the batch.
    samplers: [{shortest: {share: 0.5}}]
more_arms:"""


ON_VERL_TOO = (*ARMS, "d3s", "sgpo-again-1")  # tokens selected, profiled again
STUDIED = ("policy", "profile", "fidelity", "drift")
# Pages that are not called as their stage.
PAGES = {"language_model": "language-model", "sgpo_longer": "sgpo-longer"}


def test_every_stage_leaves_its_data_and_its_report(smoke):
    reports = {path.name for path in (smoke.folder / "reports").glob("*.html")}
    on_panels = [PAGES.get(stage, stage) for stage in PAGES_ON_PANELS]
    alone = {f"{name}.html" for name in (*STUDIED, *on_panels, "dynamics", "results", "index")}
    alone |= {f"results-{part}.html" for part in ("cost", "claims", "theory", "tables")}
    alone |= {f"dynamics-{part}.html" for part in ("plans", "others")}
    theory = {f"theory-{path.stem}.html" for path in (ROOT / "notebooks/theory").glob("*.ipynb")}
    assert len(theory) >= 7 and reports == alone | theory | {f"arm-{arm}.html" for arm in ARMS}
    for path in (smoke.folder / "reports").glob("*.html"):
        page = path.read_text()
        assert len(page) < 1_000_000 and not re.search(r"(src|href)=[\"']https?:", page), path.name
        for words in re.findall(r'<img[^>]* alt="([^"]*)"', page):  # the finding comes before the question
            assert "?" not in words.split(" – ")[0], f"{path.name}: a figure that states no finding, {words}"
        numbers = [int(number) for number in re.findall(r"<caption>Table (\d+)", page)]
        assert numbers == list(range(1, len(numbers) + 1)), path.name
        if path.name.startswith("theory-"):
            cells = {
                unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<t[dh][ >].*?</t[dh]>", page, re.S)
            }
            raw = [cell for cell in cells if re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)+|.*\.\.\.|id", cell.strip())]
            assert not raw, f"{path.name}: names of the code, or words cut short, for a reader: {raw}"
    index = (smoke.folder / "reports/index.html").read_text()
    line = index.partition('href="results.html"')[2].partition("<p>")[2].partition("</p>")[0]
    assert re.fullmatch(
        r"GRPO raises held-out accuracy from [\d.]+ to [\d.]+, greedily from [\d.]+ to [\d.]+, .*", line
    )  # the title's answer
    assert re.search(r'<math [^>]*display="block"', (smoke.folder / "reports/arm-cost-aware.html").read_text())
    for arm in ARMS:
        runs = runs_of(smoke, arm)
        assert set(runs) == ({0, 5} if arm == "grpo-again" else {0, 1})
        for folder in runs.values():
            steps = table(folder, "steps")
            assert steps["step"].tolist() == [0, 1, 2, 3]
            if arm not in ("zvf", "sgpo"):  # which refill, and fill steps with unequal groups
                assert steps["rollouts"].iloc[-1] == 4 * 32
            snapshots = {path.name for path in folder.glob("*.safetensors")}
            wanted = {f"step-{step}.safetensors" for step in (2, 4)}
            assert snapshots == (wanted if arm in ("grpo", "sgpo") else set())
    metrics = json.loads((smoke.folder / "metrics.json").read_text())
    assert set(metrics["difference"]) == {"cost-aware", "zvf", "sgpo"} and metrics["baseline"]["final_accuracy"] > 0
    assert (smoke.folder / "figures/accuracy.svg").exists() and (smoke.folder / "tables/trained_tokens.md").exists()


def test_every_report_fits_a_phone_answers_and_complains_of_nothing(smoke, browser):
    pages = sorted((smoke.folder / "reports").glob("*.html"))
    assert [complaint for page in pages for complaint in complaints(browser, page)] == []


def test_the_same_seed_trained_under_another_name_gives_the_same_bits(smoke):
    """The noise floor's first half: `grpo-again` is GRPO, so on one machine with one seed nothing may differ."""
    for name in ("steps", "evaluations", "questions", "rollouts", "selection"):
        first, again = (table(runs_of(smoke, arm)[0], name) for arm in ("grpo", "grpo-again"))
        pd.testing.assert_frame_equal(first, again, check_exact=True)


def test_stage_policy_leaves_the_shipped_weights(smoke):
    """The bytes that come with the project are those from which every arm of the pipeline starts."""
    left, shipped = (
        hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        for folder in (smoke.folder / "results/policy/model", FOLDERS["smoke"])
    )
    assert left == shipped


def test_arms_start_from_the_same_evaluation(smoke):
    first = {arm: table(runs_of(smoke, arm)[0], "evaluations").query("step == 0") for arm in ("grpo", "cost-aware")}
    assert first["grpo"]["accuracy"].tolist() == first["cost-aware"]["accuracy"].tolist()
    base = pd.read_parquet(smoke.folder / "results/policy/rollouts.parquet")
    assert (first["grpo"]["accuracy"] == base["correct"].mean()).all()  # one measurement, the base policy's


def test_nothing_to_do_takes_under_five_seconds(smoke):
    """Seconds of the processor, so that what else runs here does not count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = smoke.cold().run("dvc", "repro")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "up to date" in output and "Running" not in output
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < 5, f"a no-op dvc repro took {seconds:.1f} s"


def test_a_second_run_gives_the_same_bits(smoke, other_tools, tmp_path):
    """Here for two arms, with other hashes of strings, since processes are forked from another; every arm is resumed
    in test_train_arms.py, killed in test_killed.py. The summaries of fidelity and drift are seeded like training."""
    second = smoke.copy(tmp_path / "second")
    second.tools = other_tools
    for arm in ("cost-aware", "zvf"):
        for folder in runs_of(second, arm).values():
            shutil.rmtree(folder)
    stages = ("manifest", "theory@sgd", "policy", "profile", "train", "results")
    again = second.run("dvc", "repro", "--force", "--single-item", *stages)  # forced: nothing comes from the cache
    assert stages_in(again) == set(stages)
    assert second.data_hashes() == smoke.data_hashes() and "results/study" in smoke.data_hashes()
    for arm in ("cost-aware", "zvf"):
        for seed, folder in runs_of(smoke, arm).items():
            made_again = runs_of(second, arm)[seed]
            assert not list(made_again.glob("state.pt"))  # it is finished, so let go
            for name in ("steps", "evaluations", "questions"):
                pd.testing.assert_frame_equal(table(folder, name), table(made_again, name), check_exact=True)


def test_an_edit_to_plotting_trains_nothing_and_says_why(smoke):
    smoke.edit("src/repro/plots/training.py", "held-out accuracy (pass@1)", "held-out accuracy")
    output = smoke.run("dvc", "repro", "--dry")
    assert not re.search(r"Running stage '(train|policy|theory)", output), output
    why = ("python", "-m", "repro.pipeline", "why")
    assert "runs again because src/repro/plots/training.py changed" in smoke.run(*why, "results")
    assert "will not run for its settings or code" in smoke.run(*why, "train")
    smoke.edit("src/repro/plots/training.py", '"held-out accuracy"', '"held-out accuracy (pass@1)"')
    assert "up to date" in smoke.run("dvc", "repro")


def test_an_edited_learning_rate_is_followed_through(smoke, tmp_path):
    """Here, where the pipeline is made already, to the tables and to one page on panels: the other edits, each to every
    page, are in test_edits.py."""
    stages = ("--single-item", "manifest", "train", "results", "gates")
    test_edits.followed_through(smoke, tmp_path, "learning rate", stages)


def test_theory_and_training_run_by_themselves_with_their_defaults(smoke):
    """Opened where they lie, one of each kind; the pipeline runs every notebook, and only its parameters differ."""
    notebooks = smoke.folder / "notebooks"
    # A slider without a reader now and then hangs nbclient, not IPython.
    ipython = ("python", "-m", "IPython", "--simple-prompt", "--no-banner")
    smoke.run(*ipython, "subset.ipynb", cwd=notebooks / "theory")
    alone = str(smoke.folder / "build/alone-train.ipynb")
    smoke.run("python", "-m", "papermill", "--no-progress-bar", "train.ipynb", alone, cwd=notebooks / "jobs")


def test_a_misspelt_arm_stops_before_anything_runs(smoke):
    smoke.edit("params.yaml", "- cost_aware\n", "- cost_awar\n")
    output = smoke.run("dvc", "repro", ok=False)
    smoke.edit("params.yaml", "- cost_awar\n", "- cost_aware\n")
    assert "did you mean 'cost_aware'?" in output and "Traceback" not in output
    assert stages_in(output) == {"manifest"}


def test_a_failing_notebook_fails_its_stage_and_leaves_the_error_to_read(smoke):
    log = runs_of(smoke, "grpo")[0] / FINISHED
    whole = log.read_bytes()
    log.write_bytes(whole[:100])
    output = smoke.run("python", "-m", "repro.pipeline", "run", "report", "grpo", ok=False)
    log.write_bytes(whole)
    assert log.name in output and "delete it" in output and "Traceback" not in output.splitlines()[-1]
    assert "delete it" in (smoke.folder / "build/executed/report-grpo.ipynb").read_text()


def test_the_usual_dvc_commands_work(smoke):
    smoke.commit("smoke results")
    assert "report@grpo" in smoke.run("dvc", "dag")  # the others are tried on a clone, in test_dvc.py
    assert "everything is up to date" in smoke.run("python", "-m", "repro.pipeline", "plan")


def test_a_new_sampler_is_one_file_and_one_entry_and_shows_up_everywhere(smoke):
    """The last test of the pipeline: it leaves the studies to be made again, all but the results."""
    assert len((SAMPLER + ARM).splitlines()) <= 30
    (smoke.folder / "src/repro/methods/samplers/shortest.py").write_text(SAMPLER)
    smoke.edit("params.yaml", "\nmore_arms:", "\n" + ARM)
    output = smoke.run("dvc", "repro", "manifest", "report@shortest")
    assert stages_in(output) == {"manifest", "report@shortest"}
    studies = {
        *("dynamics", "language_model", "mixes", "longer", "sharpening", "exploratory"),
        *("prices", "online", "sgpo_longer", "clipping", "crossed", "validity", "predictor"),
        *("every_arm", "longer_bill", "rates", "equal_cost", "results"),
    }  # of all arms; fidelity and drift name theirs
    assert stages_in(smoke.run("dvc", "repro", "--dry")) - {"manifest", "train"} == studies
    assert stages_in(smoke.run("dvc", "repro", "--single-item", "results")) == {"results"}
    assert "Shortest half" in (smoke.folder / "tables/trained_tokens.md").read_text()
    assert "Shortest half" in (smoke.folder / "reports/results.html").read_text()
    for folder in runs_of(smoke, "shortest").values():
        steps = table(folder, "steps")
        assert (steps["selected_rollouts"].dropna() == 16).all() and not steps["skipped"].all()


@pytest.fixture(scope="module")
def on_verl(tmp_path_factory) -> Project:
    """A project after stage `parity`: one step of every arm, and one arm trained here and by verl's own loop. Its
    commands start as anywhere, since Ray starts its agents with the interpreter that runs it."""
    project = Project(tmp_path_factory.mktemp("on_verl"), arms=ON_VERL_TOO, panels=False)
    first = ("manifest", "policy", "profile")
    project.run("dvc", "repro", "--single-item", *first, *ON_VERL)
    return project


@pytest.mark.verl
def test_verl_does_with_every_arm_what_the_embedded_engine_does(on_verl):
    batches = pd.read_parquet(on_verl.folder / "results/parity/batches.parquet")
    assert set(batches["arm"]) == set(ON_VERL_TOO)
    assert batches_agree(batches).all(), batches.to_string()
    evaluations = pd.read_parquet(on_verl.folder / "timings/parity/evaluations.parquet")
    assert evaluations.groupby("seed")["step"].apply(list).to_dict() == {seed: [2, 4] for seed in (0, 1)}
    assert (on_verl.folder / "reports/parity.html").exists()


def runs_of(project: Project, arm: str) -> dict[int, Path]:
    """{seed: the folder of its run}, of those that the project made."""
    folders = (project.folder / "runs/here").glob(f"{arm}-*")
    named = ((re.match(rf"{arm}-(\d+)-[0-9a-f]{{16}}-", folder.name), folder) for folder in folders)
    return {int(match[1]): folder for match, folder in named if match}


def table(folder: Path, name: str) -> pd.DataFrame:
    return pd.DataFrame(getattr(Checkpoints(folder, None).finished(), name))


def stages_in(output: str) -> set[str]:
    """The stages that `dvc repro` ran, or would run."""
    return set(re.findall(r"Running stage '([^']+)'", output))
