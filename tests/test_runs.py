"""Many runs in worker processes: the bits of one process, work for later stages, failures contained."""

import json
import queue
import subprocess
import sys
import threading
import time
from dataclasses import replace
from multiprocessing.connection import Client, Listener

import pandas as pd
import psutil
import pytest
import stubborn
import torch
from tiny_run import comparable

from repro import arms as building
from repro import paths
from repro.engine import crew
from repro.engine.crew import Crew, shared_events
from repro.engine.progress import Step
from repro.engine.run import NoDevice, Run, check_device, make_trainer
from repro.engine.runs import as_job, checkpoints_of, forget, tables_of, train_runs
from repro.engine.workers import not_interrupted
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
    evaluation = SETTINGS.evaluation.model_copy(update=dict(budget_gflops=None, samples=1, final_samples=1))
    engine = ENGINE.model_copy(update={"steps": steps, "log_every": max(10, steps // 4)})
    arms = {**SETTINGS.arms, arm: SETTINGS.arms[arm].model_copy(update={"reward": ("coin_flip", {})})}
    settings = SETTINGS.model_copy(
        update={"task": TASK, "engine": engine, "evaluation": evaluation, "arms": arms}, deep=True
    )
    method, place = building.build(arm, settings.arms[arm]), folder / f"train-{arm}" / f"seed-{seed}"
    return Run(arm, seed, method, settings, policy, None, place, "a")


def alone(run: Run, tmp_path):
    """The log of the same run trained in this process, from its first step."""
    run = replace(run, folder=tmp_path / "alone" / run.arm)
    return comparable(make_trainer(run).train(checkpoints_of(run), lambda *_: None))


@pytest.mark.slow
def test_runs_in_workers_have_the_bits_of_one_process_and_are_not_trained_twice(policy, tmp_path):
    wanted = [new_run("grpo", policy, tmp_path, steps=200), new_run("cost-aware", policy, tmp_path, steps=20)]
    lines, seen = [], []
    logs = train_runs(wanted, say=lines.append, watch=seen.append)
    assert list(logs) == [("grpo", 0), ("cost-aware", 0)]
    steps = [event for event in seen if isinstance(event, Step) and event.arm == "cost-aware"]
    assert [event.step for event in steps] == list(range(21)) and steps[0].measured == {}
    measured = pd.DataFrame([event.measured for event in steps[1:]])
    pd.testing.assert_frame_equal(measured, pd.DataFrame(logs["cost-aware", 0].steps), check_exact=True)
    assert [event.evaluated["accuracy"] for event in steps if event.accuracy is not None] == [
        row["accuracy"] for row in logs["cost-aware", 0].evaluations
    ]
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
def test_the_shared_pool_trains_ahead_between_the_stages_and_ends_with_their_pipeline(policy, tmp_path, owner):
    first, short = new_run("grpo", policy, tmp_path, steps=20), new_run("cost-aware", policy, tmp_path, steps=3)
    broken = new_run("gspo", tmp_path / "no policy", tmp_path, steps=10)
    endless = new_run("d3s", policy, tmp_path, steps=ENDLESS, seed=4)
    asked = shared_events(owner.pid, 2, [as_job(first)], [as_job(run) for run in (broken, short, endless)])
    events = list(filter(None, asked))
    assert {event.job.name for event in events} == {"grpo, seed 0,"} and events[-1].kind == "done"
    crew = psutil.Process(json.loads((paths.BUILD / "crew.json").read_text())["owner"])
    assert crew.pid == owner.pid and oct((paths.BUILD / "crew.json").stat().st_mode)[-3:] == "600"

    # No stage asks now, and the work goes on; a run for later that fails makes no stage fail.
    wait_for(lambda: checkpoints_of(short).finished() is not None and (endless.folder / "state.pt").exists())
    assert comparable(checkpoints_of(short).finished()) == alone(short, tmp_path)
    assert comparable(checkpoints_of(first).finished()) == alone(first, tmp_path)
    # The next stage finds the same pool: what is done is reported at once, what failed is tried again.
    assert [event.kind for event in filter(None, shared_events(owner.pid, 2, [as_job(short)], []))][-1] == "done"
    asked = filter(None, shared_events(owner.pid, 2, [as_job(broken)], []))
    failed = next(event for event in asked if event.kind == "failed")
    assert isinstance(failed.value, OSError) and "no policy" in str(failed.value)

    crews = [
        process for process in psutil.process_iter(["cmdline"]) if str(owner.pid) in (process.info["cmdline"] or [])
    ]
    [server] = [process for process in crews if "repro.engine.crew" in process.info["cmdline"]]
    workers = server.children()
    owner.kill()
    owner.wait()
    wait_for(lambda: not any(process.is_running() for process in [server, *workers] if not is_zombie(process)))
    assert not (paths.BUILD / "crew.json").exists()


def test_a_caller_that_wants_nothing_leaves_its_runs_to_the_pool_and_is_gone(monkeypatch):
    key, callers = b"key", queue.Queue()
    with Listener() as listener:
        threading.Thread(target=crew._accept, args=(listener, key, callers), daemon=True).start()
        monkeypatch.setattr(crew, "_connect", lambda owner, size: Client(listener.address, authkey=key))
        runs = [b"a pickled run" * 1000] * 100  # more than a socket's buffer holds
        assert list(shared_events(1, 2, [], runs)) == []
        _, (wanted, later) = callers.get(timeout=60)
    assert wanted == [] and later == runs


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
        crew.submit([as_job(old)])
        while not any(event.kind == "step" for event in crew.events(1.0)):
            pass
        crew.submit([as_job(new)])
        received = []
        while not crew.idle:
            received += crew.events(1.0)
    finally:
        crew.terminate()
    assert {event.job.checkpoints.fingerprint for event in received} == {"b seed 0"} and received[-1].kind == "done"


def test_finished_files_of_two_seeds_that_were_exchanged_are_trained_again(policy, tmp_path):
    first, second = (new_run("grpo", policy, tmp_path, steps=2, seed=seed) for seed in (0, 1))
    right = train_runs([first, second])
    files = [run.folder / "finished.json" for run in (first, second)]
    one, other = (file.read_text() for file in files)
    files[0].write_text(other)
    files[1].write_text(one)
    assert checkpoints_of(first).finished() is None and checkpoints_of(second).finished() is None
    again = train_runs([first, second])
    assert {key: comparable(log) for key, log in again.items()} == {key: comparable(log) for key, log in right.items()}


def ends_of(crew: Crew) -> list:
    """Its events until it is idle, steps apart."""
    received = []
    while not crew.idle:
        received += [event for event in crew.events(1.0) if event.kind != "step"]
    return received


def test_a_worker_that_dies_fails_its_run_and_no_other(policy, tmp_path):
    doomed, next_one = new_run("grpo", policy, tmp_path, steps=ENDLESS), new_run("gspo", policy, tmp_path, steps=2)
    crew = Crew(1)
    try:
        crew.submit([as_job(doomed), as_job(next_one)])
        while not any(event.kind == "step" for event in crew.events(1.0)):
            pass
        crew._workers[0].process.kill()
        received = ends_of(crew)
    finally:
        crew.terminate()
    assert [(event.job.name.split(",")[0], event.kind) for event in received] == [("grpo", "failed"), ("gspo", "done")]
    assert "grpo, seed 0, ended with code -9" in str(received[0].value)


def deaf(rollouts, progress, rng):
    stubborn.hurry()  # in the worker
    stubborn.deaf(rollouts, progress, rng)


def test_a_worker_whose_sampler_escapes_its_limit_fails_its_run_and_is_replaced(policy, tmp_path):
    doomed, next_one = new_run("grpo", policy, tmp_path, steps=2), new_run("gspo", policy, tmp_path, steps=2)
    doomed = replace(doomed, method=replace(doomed.method, samplers=[deaf]))
    crew = Crew(1)
    try:
        crew.submit([as_job(doomed), as_job(next_one)])
        received = ends_of(crew)
    finally:
        crew.terminate()
    assert [(event.job.name.split(",")[0], event.kind) for event in received] == [("grpo", "failed"), ("gspo", "done")]
    assert str(received[0].value).startswith("arm grpo, seed 0: sampler deaf goes on after its 0 s, though it was")


def test_weights_are_not_trained_in_eight_bits():
    check_device("cpu", "float32")
    with pytest.raises(NoDevice, match=r"engine.dtype is 'bfloat16'.*set it to 'float32', or train on verl"):
        check_device("cpu", "bfloat16")


def test_tables_have_a_row_for_every_run_in_order(policy, tmp_path):
    runs = [new_run("grpo", policy, tmp_path, steps=2, seed=seed) for seed in (0, 3)]
    logs = [make_trainer(run).train(checkpoints_of(run), lambda *_: None) for run in runs]
    tables = tables_of(logs)
    assert list(tables) == ["steps", "evaluations", "questions", "rollouts", "selection", "seconds"]
    assert tables["steps"][["seed", "step"]].to_numpy().tolist() == [[0, 0], [0, 1], [3, 0], [3, 1]]
    assert tables["selection"].groupby("seed").size().to_dict() == {0: 16, 3: 16}
    assert tables["questions"]["query"].tolist() == [*range(7), *range(7)]


def test_a_silent_caller_holds_up_no_other_and_a_wrong_key_is_sent_away(tmp_path):
    """The pool's listener, without its workers."""
    import queue
    import threading
    from multiprocessing.connection import AuthenticationError, Client, Listener

    from repro.engine.crew import _accept

    callers: queue.Queue = queue.Queue()
    with Listener() as listener:
        threading.Thread(target=_accept, args=(listener, b"key", callers), daemon=True).start()
        silent = Client(listener.address)  # says nothing, not even the key
        with pytest.raises((AuthenticationError, EOFError)):
            Client(listener.address, authkey=b"another")
        with Client(listener.address, authkey=b"key") as caller:
            caller.send((["wanted"], []))
            _, request = callers.get(timeout=60)
        assert request == (["wanted"], []) and callers.empty()
        silent.close()


def test_a_caller_that_reads_nothing_holds_up_neither_the_pool_nor_its_end():
    import queue
    import threading
    from multiprocessing import Pipe

    from repro.engine.crew import _tell

    events, (ours, theirs) = queue.SimpleQueue(), Pipe()
    telling = threading.Thread(target=_tell, args=(ours, events), daemon=True)
    telling.start()
    for _ in range(1000):
        events.put("x" * 10_000)  # more than any buffer holds
    assert telling.is_alive() and theirs.recv() == "x" * 10_000
    theirs.close()
    telling.join(60)
    assert not telling.is_alive()


def test_ctrl_c_reaches_the_one_who_started_the_workers_and_no_worker():
    """From its first instruction on: a worker that is still importing would end in a traceback."""
    import os
    import signal

    with not_interrupted():
        worker = subprocess.Popen(
            [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"], stdout=-1
        )
    worker.send_signal(signal.SIGINT)
    assert worker.stdout.readline() == b"1\n" and worker.poll() is None
    worker.kill()
    worker.communicate()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, where the tests run in the background
    with pytest.raises(KeyboardInterrupt), not_interrupted():
        os.kill(os.getpid(), signal.SIGINT)  # it comes when the workers have been started
    signal.signal(signal.SIGINT, before)
