"""How fast the embedded engine is: `make bench`, or `python -m benchmarks.speed [--pairs N] [--arms NAME …]`.

Three ratios, measured together on one machine: rollouts per second against TRL's GRPOTrainer; a whole run, training
and evaluations, against the same run by the engine of commit bbba75f; and a training step against that engine's. All
start from one base policy and do the work in settings.yaml. The competitors are single-threaded processes on one core
that take turns, batch by batch and step by step, so that other load affects them alike. Start-up and a first batch are
excluded. Writes speed.json and speed.md beside this file.
"""

import argparse
import importlib.util
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from benchmarks.publish import publish
from benchmarks.speed_tables import as_markdown, summarise
from benchmarks.workload import FIXED
from repro.engine.workers import KEEP_MEMORY
from repro.paths import BUILD, ROOT
from repro.report.provenance import commit, hardware, packages

OLD, POLICY = "bbba75f", "7d3fa04"  # the commit to compare with; the one that shipped its base policy
ENVIRONMENT = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")} | KEEP_MEMORY
ENVIRONMENT |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
BATCHES = 5  # of the race, per pair of runs
LOGGED = {"generate": "generation", "update": "update", "probe": "KL probe", "evaluation": "evaluation"}


class Competitor:
    """A process of this package that answers requests. `code`: the root of the code it runs."""

    def __init__(self, module: str, *arguments: object, code: Path = ROOT):
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by `stop`)
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", f"benchmarks.{module}", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            bufsize=1,
            cwd=ROOT,
            env=os.environ | ENVIRONMENT | {"PYTHONPATH": str(code / "src"), "REPRO_ROOT": str(code)},
        )
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self.process.pid, {max(os.sched_getaffinity(0))})

    def ask(self, do: str, **arguments: object) -> dict:
        """The answer to one request; SystemExit with what it last said if the process died."""
        print(json.dumps({"do": do, **arguments}), file=self.process.stdin)
        if line := self.process.stdout.readline():
            return json.loads(line)
        self.errors.seek(0)
        raise SystemExit(f"benchmarks: a competitor stopped early:\n{self.errors.read()[-2000:]}")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()


def at_commit(name: str, *paths: str) -> Path:
    """A folder with the files of a commit, or those below `paths`; SystemExit if the clone does not have it."""
    folder = BUILD / "bench" / name
    if not folder.exists():
        done = subprocess.run(["git", "-C", str(ROOT), "archive", name, *paths], capture_output=True)
        if done.returncode:
            raise SystemExit(
                f"benchmarks: this clone does not have commit {name}, which the comparison needs: get the whole "
                "history with `git fetch --unshallow`, then run this command again"
            )
        partial = folder.with_suffix(".partial")
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since Python 3.11.4
            archive.extractall(partial, **safely)
        partial.rename(folder)
    return folder


def ask_all(competitors: dict[str, Competitor], turn: int, do: str, **arguments: object) -> dict[str, dict]:
    """The answers by name, asked one after the other; the order is reversed at every turn."""
    names = list(competitors)[:: -1 if turn % 2 else 1]
    answers = {name: competitors[name].ask(do, **arguments) for name in names}
    return {name: answers[name] for name in competitors}


def race(engines: dict[str, Competitor], policy: Path, batches: int) -> list[dict]:
    """Batches by both engines and TRL, after one for warming up."""
    competitors = {**engines, "trl": Competitor("trl_worker", policy, 1 + batches)}
    try:
        ask_all(engines, 0, "begin_race")
        return [ask_all(competitors, turn, "step") for turn in range(1 + batches)][1:]
    finally:
        competitors["trl"].stop()


def run(engines: dict[str, Competitor], arm: str, seed: int) -> dict[str, dict]:
    """A whole run by both engines, step by step: wall and CPU seconds, the latter by phase too, and the work done."""
    begun = ask_all(engines, seed, "begin", arm=arm, seed=seed)
    assert len({answer["queries"] for answer in begun.values()}) == 1, "the engines train on different queries"
    totals = {name: defaultdict(float) for name in engines}
    for step, do, asked in requests():
        add = _add_step if do == "step" else _add_evaluation
        for name, answer in ask_all(engines, seed + step, do, **asked).items():
            add(totals[name], answer)
    return {name: dict(total) for name, total in totals.items()}


def products(engine: Competitor, arm: str, seed: int) -> dict[str, float]:
    """Seconds that matrix products take of a run, by phase: one more run, recorded by torch's profiler."""
    engine.ask("begin", arm=arm, seed=seed)
    total: dict[str, float] = defaultdict(float)
    for _, do, asked in requests():
        for logged, seconds in engine.ask(do, recorded=True, **asked)["products"].items():
            total[LOGGED.get(logged, "rest")] += seconds
    return dict(total)


def requests() -> Iterator[tuple[int, str, dict[str, int]]]:
    """What a whole run asks of an engine once it has begun: the step, "step" or "evaluate", and with what."""
    evaluation, steps = FIXED["evaluation"], FIXED["engine"]["steps"]
    for step in range(1, steps + 1):
        yield step, "step", {}
        if step % evaluation["every"] == 0:
            yield step, "evaluate", {"samples": evaluation["final_samples" if step == steps else "samples"]}


def _add_step(total: dict[str, float], answer: dict) -> None:
    phases, of = answer.pop("phases"), [name for name in LOGGED if name != "evaluation"]
    answer.pop("products")
    for logged in of:
        total[LOGGED[logged]] += phases.get(logged, 0.0)
    total["rest"] += answer["cpu_seconds"] - sum(phases.get(logged, 0.0) for logged in of)
    for name in ("seconds", "cpu_seconds"):
        total[f"step_{name}"] += answer[name]
    for name, value in answer.items():
        total[name] += value


def _add_evaluation(total: dict[str, float], answer: dict) -> None:
    total["evaluation"] += answer["cpu_seconds"]
    for name in ("seconds", "cpu_seconds"):
        total[name] += answer[name]
    total["evaluation_tokens"] += answer["tokens"]
    total["flops_evaluate"] += answer["flops"]
    total["accuracy"] = answer["accuracy"]  # the last one's


def measure(pairs: int, arms: list[str]) -> dict:
    """Everything: the race, then `pairs` runs of every arm, each with a seed of its own."""
    policy = at_commit(POLICY, "src/repro/policy/pretrained") / "src/repro/policy/pretrained"
    code = {"before": at_commit(OLD), "after": ROOT}
    engines = {name: Competitor("engine_worker", policy, code=folder) for name, folder in code.items()}
    try:
        races, runs = race(engines, policy, BATCHES * pairs), {arm: [] for arm in arms}
        print(f"race against TRL: {len(races)} batches each", flush=True)
        ask_all(engines, 0, "evaluate", samples=1)  # warms up
        for pair in range(pairs):
            for arm in arms:
                runs[arm].append(run(engines, arm, seed=pair))
                took = {name: total["cpu_seconds"] for name, total in runs[arm][-1].items()}
                print(f"pair {pair + 1}/{pairs}, {arm}: {took['before']:.1f} s, now {took['after']:.1f} s", flush=True)
        peak = engines["after"].ask("peak")["flops_per_second"]
        multiplied = products(engines["after"], arms[0], seed=0)
    finally:
        for engine in engines.values():
            engine.stop()
    return {"peak_gflops": peak / 1e9, "products": multiplied, "race": races, "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=6, help="runs per arm and engine (at least 6 for a 95%% interval)")
    parser.add_argument("--arms", nargs="+", default=list(FIXED["arms"]), choices=list(FIXED["arms"]))
    chosen = parser.parse_args()
    if chosen.pairs < 1:
        parser.error(f"--pairs is {chosen.pairs}; at least one pair is needed")
    if importlib.util.find_spec("trl") is None:
        raise SystemExit("benchmarks: TRL is not installed here: run `make extra-trl`, then this command again")
    about = {**commit(), "before": OLD, "hardware": hardware(), "packages": packages() | {"trl": version("trl")}}
    measured = measure(chosen.pairs, chosen.arms)
    result = {**about, **summarise(measured), **measured}
    publish(result, as_markdown(result), Path(__file__))


if __name__ == "__main__":
    main()
