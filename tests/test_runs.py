"""Many runs in worker processes: the bits of one process, work ahead between stages, failures contained."""

import json
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest
import torch
from tiny_run import comparable

from repro import paths
from repro.engine.crew import Crew
from repro.engine.runs import Run, forget, make_trainer, tables_of, train_runs
from repro.engine.standing import ask_standing_crew
from repro.policy.model import build_qwen2, save_policy
from repro.settings import load
from repro.tasks.tokenizer import build_tokenizer

SETTINGS = load(scale="smoke")
TASK = SETTINGS.task.model_copy(update=dict(train_queries=7, evaluation_queries=7))
ENGINE = SETTINGS.engine.model_copy(
    update=dict(rollouts_per_step=16, minibatch=8, max_new_tokens=6, checkpoint_every=1000, kl_probe=0, workers=2)
)
ENDLESS = 100_000  # steps


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("policy") / "model"
    model = build_qwen2(hidden=16, layers=1, heads=2, max_length=64)
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(8.0)  # a policy with opinions, so that some answers are even right
    save_policy(model, build_tokenizer(), folder)
    return folder


def new_run(arm: str, policy, folder, steps: int, seed: int = 0) -> Run:
    """A run whose rewards are coin flips where it should learn: an untrained policy solves nothing."""
    evaluation = SETTINGS.evaluation.model_copy(update=dict(every=max(10, steps // 4), samples=1, final_samples=1))
    engine = ENGINE.model_copy(update={"steps": steps})
    arms = {**SETTINGS.arms, arm: SETTINGS.arms[arm].model_copy(update={"reward": ("coin_flip", {})})}
    settings = SETTINGS.model_copy(
        update={"task": TASK, "engine": engine, "evaluation": evaluation, "arms": arms}, deep=True
    )
    return Run(arm, seed, settings, policy, None, folder / f"train-{arm}" / f"seed-{seed}", "a")


def alone(run: Run, tmp_path):
    """The log of the same run trained in this process, from its first step."""
    run = replace(run, folder=tmp_path / "alone" / run.arm)
    return comparable(make_trainer(run).train(run.checkpoints, lambda *_: None))


@pytest.mark.slow
def test_runs_in_workers_have_the_bits_of_one_process_and_are_not_trained_twice(policy, tmp_path):
    wanted = [new_run("grpo", policy, tmp_path, steps=200), new_run("cost-aware", policy, tmp_path, steps=20)]
    lines: list[str] = []
    logs = train_runs(wanted, say=lines.append)
    assert list(logs) == [("grpo", 0), ("cost-aware", 0)]
    assert any(line.startswith("grpo  seed 0  step 200/200  accuracy ") for line in lines)
    for run in wanted:
        assert comparable(logs[run.arm, 0]) == alone(run, tmp_path)
    before = time.monotonic()
    assert [comparable(log) for log in train_runs(wanted).values()] == [comparable(log) for log in logs.values()]
    assert time.monotonic() - before < 2.0  # read, not trained: no worker could have started
    forget(wanted)
    assert not (tmp_path / "train-grpo").exists()


@pytest.mark.slow
def test_a_wanted_run_that_fails_ends_all_at_once(policy, tmp_path):
    good = new_run("grpo", policy, tmp_path, steps=ENDLESS)
    bad = new_run("gspo", tmp_path / "no policy", tmp_path, steps=10)
    started = time.monotonic()
    with pytest.raises(OSError, match="no policy"):
        train_runs([good, bad], say=lambda line: None)
    assert time.monotonic() - started < 120  # the endless run is not waited for


@pytest.fixture
def owner(tmp_path, monkeypatch):
    """A process in the place of `dvc repro`, and the build folder of a project of its own."""
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.slow
def test_a_standing_crew_trains_ahead_between_the_stages_and_ends_with_their_pipeline(policy, tmp_path, owner):
    first, short = new_run("grpo", policy, tmp_path, steps=20), new_run("cost-aware", policy, tmp_path, steps=3)
    broken = new_run("gspo", tmp_path / "no policy", tmp_path, steps=10)
    endless = new_run("d3s", policy, tmp_path, steps=ENDLESS, seed=4)
    news = list(ask_standing_crew(owner.pid, 2, [first], [broken, short, endless]))
    assert {one.run.arm for one in news} == {"grpo"} and news[-1].kind == "done"  # nothing of what nobody asked for
    crew = psutil.Process(json.loads((paths.BUILD / "crew.json").read_text())["owner"])
    assert crew.pid == owner.pid and oct((paths.BUILD / "crew.json").stat().st_mode)[-3:] == "600"

    # Nobody asks now, and the work goes on: what fails ahead of its time fails nobody.
    wait_for(lambda: short.checkpoints.finished() is not None and (endless.folder / "state.pt").exists())
    assert comparable(short.checkpoints.finished()) == alone(short, tmp_path)
    assert comparable(first.checkpoints.finished()) == alone(first, tmp_path)
    # The next stage finds the same crew: what is done is told at once, what failed is tried again and heard.
    assert [one.kind for one in ask_standing_crew(owner.pid, 2, [short], [])][-1] == "done"
    heard = next(one for one in ask_standing_crew(owner.pid, 2, [broken], []) if one.kind == "failed")
    assert isinstance(heard.value, OSError) and "no policy" in str(heard.value)

    crews = [
        process for process in psutil.process_iter(["cmdline"]) if str(owner.pid) in (process.info["cmdline"] or [])
    ]
    [standing] = [process for process in crews if "repro.engine.standing" in process.info["cmdline"]]
    workers = standing.children()
    owner.kill()
    owner.wait()
    wait_for(lambda: not any(process.is_running() for process in [standing, *workers] if not is_zombie(process)))
    assert not (paths.BUILD / "crew.json").exists()


def wait_for(condition, seconds: float = 120.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.2)


def is_zombie(process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_an_outdated_run_under_way_gives_way_to_the_wanted_version(policy, tmp_path):
    old = new_run("grpo", policy, tmp_path, steps=ENDLESS)
    new = replace(new_run("grpo", policy, tmp_path, steps=2), fingerprint="b")
    crew = Crew(1)
    try:
        crew.ask([old])
        while not any(news.kind == "step" for news in crew.listen(1.0)):
            pass
        crew.ask([new])
        heard = []
        while not crew.idle:
            heard += crew.listen(1.0)
    finally:
        crew.dismiss()
    assert {news.run.fingerprint for news in heard} == {"b"} and heard[-1].kind == "done"


def test_a_worker_that_dies_fails_its_run_and_no_other(policy, tmp_path):
    doomed, next_one = new_run("grpo", policy, tmp_path, steps=ENDLESS), new_run("gspo", policy, tmp_path, steps=2)
    crew = Crew(1)
    try:
        crew.ask([doomed, next_one])
        while not any(news.kind == "step" for news in crew.listen(1.0)):
            pass
        crew._members[0].process.kill()
        heard = []
        while not crew.idle:
            heard += [news for news in crew.listen(1.0) if news.kind != "step"]
    finally:
        crew.dismiss()
    assert [(news.run.arm, news.kind) for news in heard] == [("grpo", "failed"), ("gspo", "done")]
    assert "grpo, seed 0, ended with code -9" in str(heard[0].value)


def test_tables_have_a_row_for_every_run_in_order(policy, tmp_path):
    runs = [new_run("grpo", policy, tmp_path, steps=2, seed=seed) for seed in (0, 3)]
    logs = [make_trainer(run).train(run.checkpoints, lambda *_: None) for run in runs]
    tables = tables_of(logs)
    assert list(tables) == ["steps", "evaluations", "questions", "rollouts", "selection", "seconds"]
    assert tables["steps"][["seed", "step"]].to_numpy().tolist() == [[0, 0], [0, 1], [3, 0], [3, 1]]
    assert tables["selection"].groupby("seed").size().to_dict() == {0: 16, 3: 16}
    assert tables["questions"]["query"].tolist() == [*range(7), *range(7)]
