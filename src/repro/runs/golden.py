"""What the code of an arm computes: golden steps, whose digest is a part of every run's key.

Code counts by what it does, not by how it is written. For each arm a fraction of a second of training is done on
small sizes: batches, updates, evaluations, a second profile where the arm has one; its plan is drawn from, its samplers
choose from one batch at every point of a schedule, its objective is asked for losses and gradients on a grid. The
digest of all figures is kept in runs/golden.csv next to the hash of the code that gave it, a row per arm, code and kind
of CPU:

    case      what an arm and the settings of its engine make of the golden steps: arms of equal parts share one
    code      hash of the modules that train it, without comments, docstrings and layout
    cpu       kind of CPU, its instructions, and torch's version: on another one rounding gives other digits
    digest    of the figures
    computes  the name of what the code computes, which runs are kept under: the first digest seen

Code whose hash is known is not run. After an edit the steps are made again: the same digest, the same name, and every
run stands; another one, a new name, and the runs of that arm are asked for again. A kind of CPU that has no golden
steps yet is given those of the code at hand, under the name that other kinds know; this is said.
"""

import csv
import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
from filelock import FileLock

from repro import arms, paths
from repro.closure import closure, code_hash
from repro.errors import Refused
from repro.files import read_json, write_json, write_text
from repro.machine import hardware, packages, slug
from repro.methods.guard import MethodError
from repro.methods.lengths import Lengths
from repro.methods.method import Method
from repro.methods.plans import Queries
from repro.methods.rollouts import Rollouts
from repro.policy.adapters import trained
from repro.policy.model import GOLDEN
from repro.protocol.log import Log
from repro.runs.key import Asked, digest, has_functions, parts_of
from repro.settings import Settings
from repro.settings.arm import EngineChanges

SLOW = 10.0  # seconds of trying an arm out after which one is told
TASK = {
    "seed": 0,
    "train_queries": 12,
    "evaluation_queries": 6,
    "families": {
        name: {"dataset": "chain_sum", "share": 0.5, "options": {"min_terms": n, "max_terms": n, "max_digits": 1}}
        for name, n in (("sum-2", 2), ("sum-3", 3))
    },
}
ROLLOUTS, TOKENS, STEPS = 32, 48, 3
SMALL = {"steps": STEPS, "max_new_tokens": TOKENS, "learning_rate": 1e-3, "kl_probe": 8, "kept_rollouts": 1}
POINTS = 24  # of a schedule at which samplers choose: the steps of the study
ALONE = 6  # as many cases are made here; more, in workers, whose start takes seconds


class Row(NamedTuple):
    case: str
    code: str
    cpu: str
    digest: str
    computes: str


class NoGoldenSteps(Refused):
    """One sentence: an arm whose golden steps fail, so that its runs cannot be distinguished from others'."""


def case_settings(asked: Asked) -> Settings:
    """The settings of the golden steps of a run: its arm and engine, on small sizes."""
    settings, engine = asked.settings, asked.settings.engine_of(asked.arm)
    parts = max(1, engine.rollouts_per_step // engine.minibatch)
    small = {**SMALL, "rollouts_per_step": ROLLOUTS, "minibatch": max(1, ROLLOUTS // parts), "log_every": 1}
    small |= {"checkpoint_every": STEPS + 1, "device": "cpu", "kl_probe": min(8, engine.kl_probe)}
    small |= {} if engine.stop_gflops is None else {"stop_gflops": 2.0}  # about as many steps
    entry = settings.arm(asked.arm).model_copy(update={"engine": EngineChanges(), "seeds": None})
    evaluation = {"budgets": 1, "budget_gflops": 1.0, "samples": 1, "final_samples": 2}
    if settings.evaluation.budget_gflops is None:
        del evaluation["budget_gflops"]
    elif settings.evaluation.generation_gflops:
        evaluation["generation_gflops"] = 0.3
    return settings.model_copy(
        update={
            "task": _task(type(settings.task)),
            "engine": engine.model_copy(update=small),
            "evaluation": settings.evaluation.model_copy(update=evaluation),
            "arms": {asked.arm: entry},
            "more_arms": {},
            **{name: getattr(settings, name).model_copy(update={"arms": []}) for name in ("fidelity", "drift")},
        }
    )


@cache
def _task(kind: type) -> Any:
    return kind.model_validate({**TASK, "pretraining_queries": 1})


def case_of(asked: Asked) -> str:
    """The hash of what the golden steps of a run depend on."""
    settings = case_settings(asked)
    entry = settings.arm(asked.arm).model_copy(update={"repeat": 0})
    return digest(parts_of(entry), settings.engine.model_dump(), settings.evaluation.model_dump())


def code_of(asked: Asked) -> str:
    """The hash of the modules that train its arm."""
    entry = asked.settings.arm(asked.arm)
    named = [f"repro.methods.{package}.{part}" for package, part, _ in entry.calls if isinstance(part, str)]
    return _code(tuple(sorted({"repro.engine.run", *named})))


@cache
def _code(modules: tuple[str, ...]) -> str:
    files = closure(modules)
    return digest([[path.relative_to(paths.SOURCE).as_posix(), code_hash(path)] for path in files])


@cache
def kind() -> str:
    """The kind of CPU, its instructions and the version of torch."""
    cpu, version = hardware()["cpu"], packages(["torch"])["torch"]
    path, limited = paths.SCRATCH / "kind.json", os.environ.get("ATEN_CPU_CAPABILITY", "")
    stored = read_json(path, "delete it") if path.exists() else {}
    if stored.get("known") != [cpu, version, limited]:
        import torch  # seconds, which what only reads need not wait for

        stored = {"known": [cpu, version, limited], "instructions": torch.backends.cpu.get_cpu_capability()}
        write_json(stored, path)
    return f"{cpu}, {stored['instructions']}, torch {version}"


def computes(asked: Sequence[Asked], say: Callable[[str], Any] = print) -> list[str]:
    """The name of what the code of each run computes; golden steps are made where the code at hand has none here."""
    table = read()
    keys = [(case_of(one), code_of(one)) for one in asked]
    known = {(row.case, row.code): row.computes for row in table if row.cpu == kind()}
    missing = {key: one for key, one in zip(keys, asked, strict=True) if key not in known or _closes_over(one)}
    if missing:
        for one in missing.values():
            with _impatient(say, one.arm):
                arms.check(one.settings, [one.arm])  # what is wrong is said in one sentence
        made = _make(list(missing.values()))
        rows = [
            Row(*key, kind(), found, found) if _closes_over(one) else _named(*key, found, table)
            for (key, one), found in zip(missing.items(), made, strict=True)
        ]
        _tell_first([row for row in rows if row not in table], table, say)
        known |= {(row.case, row.code): row.computes for row in rows}
        write([row for row in rows if row not in table])
    return [known[key] for key in keys]


@contextmanager
def _impatient(say: Callable[[str], Any], arm: str) -> Iterator[None]:
    """Say so after `SLOW` seconds: a function of the arm that is tried out may not end."""
    timer = Timer(SLOW, say, [f"trying out {arm}: {SLOW:.0f} s so far; if one of its loops does not end, interrupt"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _closes_over(one: Asked) -> bool:
    """Whether a part of its arm is a function of a cell, whose variables no hash of code has."""
    return has_functions(one.settings.arm(one.arm))


def _named(case: str, code: str, found: str, table: Sequence[Row]) -> Row:
    """The row of golden steps that were made here."""
    own = [row for row in table if row.case == case]
    here = [row for row in own if row.cpu == kind()]
    same = [row for row in here if row.digest == found] or [row for row in own if row.code == code]
    if not same and not here:
        same = own  # this kind of CPU has none yet
    return Row(case, code, kind(), found, same[-1].computes if same else found)


def _tell_first(rows: Sequence[Row], table: Sequence[Row], say: Callable[[str], Any]) -> None:
    """Say that a kind of CPU had no golden steps of arms that others have."""
    cases = {row.case for row in table if row.cpu != kind()} - {row.case for row in table if row.cpu == kind()}
    if taken := [row for row in rows if row.case in cases]:
        say(
            f"golden steps of {len(taken)} arms made on this kind of CPU ({kind()}), which had none: from now on they "
            "tell what an edit of the code changes; until now it is taken to compute what it did elsewhere"
        )


def _make(asked: Sequence[Asked]) -> list[str]:
    """The digests of the golden steps of some runs."""
    if len(asked) <= ALONE:
        return [golden_steps(cloudpickle.dumps(one)) for one in asked]
    from repro.engine.workers import map_in_workers

    return map_in_workers(golden_steps, [cloudpickle.dumps(one) for one in asked], asked[0].settings.engine.workers)


def golden_steps(pickled: bytes) -> str:
    """The digest of a run's golden steps, on one thread; NoGoldenSteps names an arm that cannot make them."""
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    asked: Asked = cloudpickle.loads(pickled)
    settings, threads = case_settings(asked), torch.get_num_threads()
    method = arms.build(asked.arm, settings.arm(asked.arm))
    torch.set_num_threads(1)  # the order of a sum goes by their number
    try:
        figures = [*_trained(asked, settings, method), *_drawn(method), *_planned(settings, asked.arm, method)]
        return digest(*figures, _losses(method))
    except MethodError:
        raise
    except Exception as error:
        raise NoGoldenSteps(
            f"arm {asked.arm}: its golden steps, {STEPS} steps of {ROLLOUTS} rollouts, end in "
            f"{type(error).__name__}: {error}; a run of it is kept under what its code computes, so mend the arm"
        ) from error
    finally:
        torch.set_num_threads(threads)


class _Unkept:
    """In the place of checkpoints: nothing is taken up or kept."""

    def restore(self, trainer: Any) -> int:
        return 0

    def save(self, trainer: Any, step: int) -> None: ...

    def keep_snapshot(self, model: Any, step: int) -> None: ...


def _trained(asked: Asked, settings: Settings, method: Method) -> Iterable[Any]:
    """The tables and the last weights of a short run: its first step, updates, and two evaluations."""
    try:
        trainer, log = _train(asked.arm, settings, method)
    except MethodError:  # a plan whose groups are larger than these batches
        whole = asked.settings.engine_of(asked.arm).rollouts_per_step
        engine = settings.engine.model_copy(update={"rollouts_per_step": whole, "minibatch": whole})
        trainer, log = _train(asked.arm, settings.model_copy(update={"engine": engine}), method)
    weights = hashlib.sha256()
    for values in trained(trainer.model).values():
        weights.update(values.detach().cpu().numpy().tobytes())
    yield from (log.steps, log.evaluations, log.questions, log.selection, weights.hexdigest())


def _train(arm: str, settings: Settings, method: Method) -> tuple[Any, Log]:
    from repro.engine.run import Run, make_trainer

    trainer = make_trainer(Run(arm, 0, method, settings, GOLDEN, None, Path(), ""))
    return trainer, trainer.train(_Unkept(), lambda *_: None)


def _drawn(method: Method, groups: int = 12, size: int = 8) -> Iterable[Any]:
    """What the filter keeps and the samplers choose of one batch, at every point of a schedule."""
    rng = np.random.default_rng(0)
    group_N = np.repeat(np.arange(groups), size)
    solved_N = rng.random(groups * size) < np.repeat(np.linspace(0, 1, groups), size)
    tokens_N = rng.integers(3, 40, groups * size)
    lengths = Lengths(tokens_N, tokens_N == tokens_N.max(), int(tokens_N.max()))
    rewards_N = method.rewards(0, solved_N.astype(float), np.random.default_rng(1), lengths)
    if method.filter is not None:
        yield method.kept_groups(0, rewards_N, group_N).tolist()
    mask_N_T = np.arange(tokens_N.max()) < tokens_N[:, None]
    rollouts = Rollouts.from_batch(
        group_N=group_N,
        rewards_N=rewards_N,
        advantages_N=method.advantages(0, rewards_N, group_N, lengths),
        prompt_tokens_N=np.full(groups * size, 7),
        response_tokens_N=tokens_N,
        entropy_N_T=rng.random(mask_N_T.shape) * mask_N_T,
        logprob_N_T=-rng.random(mask_N_T.shape) * mask_N_T,
    )
    for step in range(POINTS + 1):
        progress = min(step / POINTS, 1 - 1e-9)
        chosen = method.select(step, rollouts, progress, np.random.default_rng([2, step]))
        yield None if chosen is None else _plain(chosen)


def _plain(chosen: Rollouts) -> dict[str, Any]:
    """A selection's rows, weights and tokens."""
    values = {name: np.asarray(value) for name, value in vars(chosen).items() if isinstance(value, (np.ndarray, int))}
    return {name: hashlib.sha256(np.ascontiguousarray(value)).hexdigest() for name, value in values.items()}


def _planned(settings: Settings, arm: str, method: Method, count: int = 40) -> Iterable[Any]:
    """The first groups of its plan, twice through queries of every success rate."""
    profile, tokens_Q = settings.arm(arm).profile, np.arange(count) % 5 + 4
    known = Queries(tokens_Q)
    if profile:
        known = Queries(tokens_Q, np.arange(count) % (profile.samples + 1), np.full(count, profile.samples))
    stream = method.made_plan(0, known, 128, np.random.default_rng(3))
    for _ in range(6):
        groups = stream.fill_step(128)
        yield [[int(group.query), int(group.size)] for group in groups]
        arms.tell(stream, groups)


def _losses(method: Method) -> list[Any]:
    """Token losses and their gradients on a grid of log-ratios, for either sign of the advantage and none."""
    import torch

    ratio_T = torch.tensor([-5.0, -1.0, -0.3, -0.22, -0.1, -1e-4, 0.0, 1e-4, 0.1, 0.22, 0.3, 1.0, 1.7, 5.0])
    advantages_N = torch.tensor([-1.5, -0.5, 0.0, 0.5, 1.5])
    old_N_T = torch.full((len(advantages_N), len(ratio_T)), -6.0)
    logprob_N_T = (old_N_T + ratio_T).requires_grad_()
    mask_N_T = torch.ones_like(old_N_T, dtype=torch.bool)
    loss_N_T, clipped_N_T = method.token_loss(0, logprob_N_T, old_N_T, advantages_N, mask_N_T)
    found = [loss_N_T.tolist(), clipped_N_T.tolist()]
    if loss_N_T.requires_grad:
        found.append(torch.autograd.grad(loss_N_T.sum(), [logprob_N_T])[0].tolist())
    return found


def read(files: Sequence[Path] = ()) -> list[Row]:
    """The golden steps in git, then those of this machine and of others that were copied here."""
    files = files or [paths.GOLDEN, *sorted(paths.HERE.glob("golden*.csv"))]
    rows: dict[Row, None] = {}
    for path in files:
        if path.exists():
            lines = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
            rows |= {Row(*line): None for line in lines[1:] if len(line) == len(Row._fields)}
    return list(rows)


def write(rows: Sequence[Row], path: Path | None = None) -> None:
    """Add rows to a table, by default this machine's own."""
    if not rows:
        return
    path = path or paths.HERE / f"golden-{slug(kind())}.csv"
    paths.SCRATCH.mkdir(parents=True, exist_ok=True)
    with FileLock(paths.SCRATCH / "golden.lock"):
        text = path.read_text(encoding="utf-8") if path.exists() else ",".join(Row._fields) + "\n"
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows(rows)
        write_text(text + lines.getvalue(), path)
