"""Make runs of the atlas: base policies, what a run needs to know before it starts, the runs, their tables."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import groupby
from pathlib import Path

import pandas as pd
import torch

from repro import arms, paths
from repro import settings as settings_module
from repro.atlas import design as designs
from repro.atlas.batches import batches
from repro.atlas.design import Cell, Design, settings_of
from repro.atlas.machines import of_this_cpu
from repro.atlas.temperatures import at_temperatures, of_base
from repro.engine.groups import sample_groups
from repro.engine.log import Log
from repro.engine.profile import hash_policy
from repro.engine.run import Run
from repro.engine.runs import forget, train_runs
from repro.experiments.language_model import train as language_model
from repro.experiments.language_model.queries import draw_pools
from repro.experiments.profile.measure import list_jobs, measure_all, save
from repro.files import read_parquet, write_json, write_parquet
from repro.policy.base import make_base_policy
from repro.policy.model import ensure_tokenizer, load_policy, save_policy
from repro.report.provenance import commit, hardware, packages
from repro.settings import Settings
from repro.stats import atlas
from repro.stats.panel import STORED, made_with
from repro.stats.runs import load
from repro.stored import Amount, Share, Size, read_stored
from repro.tasks.queries import make_pools
from repro.training import hash_files, start_evaluation

CHUNK = 24  # runs between two writes
TABLES = {"curves": "evaluations", "steps": "steps", "questions": "questions", "seconds": "seconds"}  # of the log
START = {"samples": Size, "accuracy": Share, "response_tokens": Amount, "truncated": Share}  # of the base policy
TRAINING = ("engine", "methods", "policy", "tasks")  # packages that a run's numbers depend on


def missing(of: Sequence[Cell]) -> list[Cell]:
    """Those without data."""
    made = set(atlas.load("runs")["run"])
    return [cell for cell in of if cell.name not in made]


def make(
    design: Design,
    of: Sequence[Cell],
    part: str = "",
    minutes: float | None = None,
    say: Callable = print,
    any_cpu: bool = False,
) -> int:
    """Make the missing runs among `of`, write their tables every `CHUNK` runs and return their number. A later call
    goes on where this one was cut off. `part`: a shard's own files. `minutes`: no chunk begins after as many.
    `any_cpu`: those that are left to another kind of CPU too."""
    began, made = time.monotonic(), 0
    left = missing(of) if any_cpu else of_this_cpu(design, missing(of), say)
    for cells, settings in by_setting(design, left):
        policy = policy_of(design, cells[0], say)
        describe(design, cells[0].panel)
        for start in range(0, len(cells), CHUNK):
            if minutes is not None and time.monotonic() - began > 60 * minutes:
                return made
            chunk = cells[start : start + CHUNK]
            runs = runs_of(design, chunk, settings, policy)
            logs = train(design, chunk, runs, say)
            samples = design.panels[chunk[0].panel].temperatures
            keep(chunk, logs, part, scored(chunk, runs, samples) if samples else None)
            forget(runs)
            made += len(chunk)
            say(f"atlas: {made} runs made, the last {chunk[-1].name}")
    return made


def describe(design: Design, panel: str) -> None:
    """Store what the panel's runs were made with beside them; an arm that is there already stays as it was made."""
    path = paths.ATLAS_DATA / panel / "settings.json"
    now = made_with(settings_of(design, Cell(panel, design.panels[panel].policies[0], "", 0)))
    stored = read_stored(path, "git checkout it", STORED) if path.exists() else now
    if set(now["arms"]) - set(stored["arms"]) or not path.exists():
        write_json(stored | {"arms": now["arms"] | stored["arms"]}, path)


def by_setting(design: Design, of: Sequence[Cell]) -> Iterator[tuple[list[Cell], Settings]]:
    """The cells with equal settings together, and their settings."""
    order = {cell.setting: index for index, cell in reversed(list(enumerate(of)))}
    for _, group in groupby(sorted(of, key=lambda cell: order[cell.setting]), key=lambda cell: cell.setting):
        cells = list(group)
        yield cells, settings_of(design, cells[0])


def runs_of(design: Design, cells: Sequence[Cell], settings: Settings, policy: Path) -> list[Run]:
    """The runs of cells with equal settings; those that a killed call has finished or begun will be taken up."""
    place = paths.ATLAS_SCRATCH / _hash(cells[0].panel, cells[0].policy, cells[0].varied)
    start = start_of(settings, policy, few_shot=design.panels[cells[0].panel].few_shot)
    fingerprint = _hash(settings.model_dump(mode="json"), hash_policy(policy), code())
    profiled = sorted({cell.seed for cell in cells if settings.arm(cell.arm).profile})
    profiles = profiles_of(settings, policy, profiled) if profiled else None
    return [
        Run(
            cell.arm,
            cell.seed,
            arms.build(cell.arm, settings.arm(cell.arm)),
            settings,
            policy,
            start,
            place / cell.arm / f"seed-{cell.seed}",
            fingerprint,
            profiles if settings.arm(cell.arm).profile else None,
        )
        for cell in cells
    ]


def train(design: Design, cells: Sequence[Cell], runs: Sequence[Run], say: Callable = print) -> dict[Cell, Log]:
    """The log of each cell's run."""
    few_shot = design.panels[cells[0].panel].few_shot
    logs = language_model.train_runs(runs, say) if few_shot else train_runs(runs, say=say)
    return {cell: logs[cell.arm, cell.seed] for cell in cells}


def keep(cells: Sequence[Cell], logs: dict[Cell, Log], part: str = "", scores: pd.DataFrame | None = None) -> None:
    """Add the tables of runs to their panel's files, `runs` last: a run listed there counts as made, and its row says
    how many rows it has in each other table. `scores`: those of the panel's temperatures."""
    machine = {"cpu": hardware()["cpu"], **commit(), "torch": packages(["torch"])["torch"], "code": code()}
    for panel, group in groupby(cells, key=lambda cell: cell.panel):
        own = list(group)
        tables = _tables(own, logs) | ({} if scores is None else {"temperatures": scores})
        for table, frame in tables.items():
            _append(frame, panel, table, part)
        facts = [
            {
                "run": cell.name,
                "panel": panel,
                "policy": cell.policy,
                "arm": cell.arm,
                "seed": cell.seed,
                "varied": json.dumps(dict(cell.varied)),
                **machine,
                **{atlas.ROWS + table: (frame["run"] == cell.name).sum() for table, frame in tables.items()},
            }
            for cell in own
        ]
        _append(pd.DataFrame(facts), panel, "runs", part)


def _tables(cells: Sequence[Cell], logs: dict[Cell, Log]) -> dict[str, pd.DataFrame]:
    """The tables of a panel's runs but `runs` and `temperatures`."""
    found = {}
    for table, name in TABLES.items():
        rows = [{"run": cell.name, **row} for cell in cells for row in getattr(logs[cell], name)]
        found[table] = pd.DataFrame(rows).drop(columns=["seed", "prompt"], errors="ignore")
    seconds = found["seconds"].groupby(["run", "phase"], sort=False, as_index=False)
    drawn = [batches(pd.DataFrame(logs[cell].selection)).assign(run=cell.name) for cell in cells]
    return found | {"seconds": seconds["seconds"].sum(), "batches": pd.concat(drawn, ignore_index=True)}


def scored(cells: Sequence[Cell], runs: Sequence[Run], samples: Mapping[float, int]) -> pd.DataFrame:
    """What the runs' policies score at other temperatures, and their base policy, if the panel does not have it yet."""
    frames = [frame.assign(run=cell.name) for cell, frame in zip(cells, at_temperatures(runs, samples), strict=True)]
    panel, base = cells[0].panel, f"{cells[0].panel}/{cells[0].policy}/base"
    if base not in set(atlas.load("temperatures", panel)["run"]):
        frames.append(of_base(runs[0].policy, runs[0].settings, samples).assign(run=base))
    return pd.concat(frames, ignore_index=True)


def take_over(design: Design, results: Path, timings: Path, policy: Path) -> list[Cell]:
    """Keep the runs of the default study that are the design's too: those of the cells whose base policy, settings and
    seed are the study's. `results`, `timings`: folders with a folder per arm; `policy`: the study's base policy.

    Returns the cells that were missing and are now kept.
    """
    study = settings_module.load()
    found: list[Cell] = []
    for name, panel in design.panels.items():
        for base in panel.policies:
            if panel.vary or panel.few_shot or hash_policy(paths.ATLAS_POLICIES / base) != hash_policy(policy):
                continue
            if not _same(settings_of(design, Cell(name, base, "", 0)), study):
                continue
            own = [cell for cell in designs.cells(design, [name]) if cell.policy == base and cell.seed in study.seeds]
            here = [cell for cell in missing(own) if (results / cell.arm / "steps.parquet").exists()]
            found += of_this_cpu(design, here)
    for name in dict.fromkeys(cell.panel for cell in found):
        describe(design, name)
    keep(found, _logs_of(found, results, timings))
    return found


def _same(one: Settings, other: Settings) -> bool:
    """Whether a run is the same with either: all that it depends on but snapshots, which are copies."""
    names = ("task", "policy", "engine", "evaluation", "arms", "profile")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _logs_of(of: Sequence[Cell], results: Path, timings: Path) -> dict[Cell, Log]:
    """The logs of the study's runs, from its tables."""
    logs = {cell: Log() for cell in of}
    names = {part.name: timings if part.name == "seconds" else results for part in fields(Log)}
    for arm, group in groupby(sorted(of, key=lambda cell: cell.arm), key=lambda cell: cell.arm):
        tables = {name: load(name, [arm], root).drop(columns="arm") for name, root in names.items()}
        for cell in group:
            for name, table in tables.items():
                setattr(logs[cell], name, table[table["seed"] == cell.seed].to_dict("records"))
    return logs


def _append(frame: pd.DataFrame, panel: str, table: str, part: str) -> None:
    path = paths.ATLAS_DATA / panel / f"{table}{part}.parquet"
    single = [name for name in frame.select_dtypes("float64") if not name.startswith("flops")]
    frame = frame.astype(dict.fromkeys(single, "float32"))
    if path.exists():
        # a kill between two tables leaves rows of runs that are made again
        before = read_parquet(path, "git checkout atlas/data")  # rows of runs listed as made are not made again
        frame = pd.concat([before[~before["run"].isin(frame["run"])], frame], ignore_index=True)
    write_parquet(frame, path)


def policy_of(design: Design, cell: Cell, say: Callable = print) -> Path:
    """The folder of the cell's base policy, in git; pre-trained where it is not there yet. A language model's is the
    one that its package was converted into."""
    if design.panels[cell.panel].few_shot:
        return language_model.policy_of(settings_of(design, cell))
    folder = paths.ATLAS_POLICIES / cell.policy
    if not (folder / "config.json").exists():
        first = next(panel for panel, entry in design.panels.items() if cell.policy in entry.policies)
        settings = settings_of(design, Cell(first, cell.policy, "", 0))
        say(f"atlas: base policy {cell.policy} is not there: pre-training it takes minutes")
        model, _ = make_base_policy(settings.policy, make_pools(settings.task), say)
        save_policy(model, ensure_tokenizer(settings.policy.source), folder)
    return folder


def start_of(settings: Settings, policy: Path, *, few_shot: bool = False) -> dict[str, float] | None:
    """The base policy's evaluation on the held-out queries, as stage `policy` makes it; measured once. None if
    evaluations use another temperature."""
    describe, engine = settings.policy, settings.engine
    if settings.evaluation.temperature != engine.temperature:
        return None
    asked = [settings.language_model.model_dump(mode="json")] if few_shot else []
    path = paths.ATLAS_SCRATCH / f"start-{_hash(describe.model_dump(), *_sampled(settings, policy), *asked)}.json"
    if not path.exists():
        torch.set_num_threads(describe.threads)
        model, tokenizer = language_model.load(policy, settings) if few_shot else load_policy(policy)
        pools = draw_pools(settings) if few_shot else make_pools(settings.task, pretraining=False)
        groups = sample_groups(
            model,
            tokenizer,
            pools.evaluation,
            groups=describe.describe_groups,
            group_size=describe.group_size,
            max_new_tokens=engine.max_new_tokens,
            temperature=engine.temperature,
            seed=describe.seed,
        )
        write_json(start_evaluation(groups, settings), path)
    return start_in(path)


def start_in(path: Path) -> dict[str, float]:
    """What `start_of` has stored."""
    return read_stored(path, "delete it, and it is measured again", START)


def profiles_of(settings: Settings, policy: Path, seeds: Sequence[int]) -> Path:
    """The folder of the profiles of `seeds`, as stage `profile` makes them; measured where missing."""
    folder = paths.ATLAS_SCRATCH / f"profiles-{_hash(settings.profile.samples, *_sampled(settings, policy))}"
    wanted = [seed for seed in seeds if not (folder / f"seed-{seed}.parquet").exists()]
    if wanted:
        alone = settings.model_copy(update={"seeds": wanted})
        queries = make_pools(settings.task, pretraining=False).train
        jobs = [job for job in list_jobs(alone, policy, queries) if job.name.startswith("seed-")]
        profiles, _ = measure_all(jobs, settings.engine.workers)
        save(folder, policy, profiles)
    return folder


def _sampled(settings: Settings, policy: Path) -> list:
    """What samples of the base policy depend on."""
    engine = settings.engine
    return [hash_policy(policy), settings.task.model_dump(mode="json"), engine.temperature, engine.max_new_tokens]


def code() -> str:
    """A hash of the code that a run's numbers depend on."""
    return hash_files(sorted(path for package in TRAINING for path in (paths.SOURCE / package).rglob("*.py")))[:12]


def _hash(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]
