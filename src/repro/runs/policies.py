"""The base policies of the design: in git, with what each answers before any training."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch

from repro import paths
from repro.engine.evaluate import examine
from repro.experiments.language_model import train as language_model
from repro.files import write_parquet
from repro.policy.base import make_base_policy
from repro.policy.model import ensure_tokenizer, load_policy, save_policy
from repro.runs.design import Cell, Design, settings_of
from repro.settings import Settings
from repro.stats import panels
from repro.tasks.queries import make_pools

HISTORY = "pretraining.parquet"
SAMPLES = 64  # of each held-out query


def policy_of(design: Design, cell: Cell, say: Callable = print) -> Path:
    """The folder of the cell's base policy, in git; pre-trained where it is not there yet. A language model's is the
    one that its package was converted into."""
    if design.panels[cell.panel].few_shot:
        return language_model.policy_of(settings_of(design, cell))
    folder = paths.BASE_POLICIES / cell.policy
    if not (folder / "config.json").exists():
        first = next(panel for panel, entry in design.panels.items() if cell.policy in entry.policies)
        settings = settings_of(design, Cell(first, cell.policy, "", 0))
        say(f"base policy {cell.policy} is not there: pre-training it takes minutes")
        model, history = make_base_policy(settings.policy, make_pools(settings.task), say)
        save_policy(model, ensure_tokenizer(settings.policy.source), folder)
        write_parquet(history, folder / HISTORY)
        write_parquet(answers_of(folder, settings), folder / panels.BASE)
    return folder


def answers_of(folder: Path, settings: Settings) -> pd.DataFrame:
    """A row per held-out query, of both splits: split, query, family, samples, successes and tokens (sums), truncated,
    greedy (whether the likeliest response is right)."""
    model, tokenizer = load_policy(folder)
    pools, threads, parts = make_pools(settings.task, pretraining=False), torch.get_num_threads(), []
    torch.set_num_threads(1)
    for split, queries in (("held-out", pools.evaluation), ("harder", pools.harder)):
        if not queries:
            continue
        how = {"samples": SAMPLES, "seed": settings.policy.seed}
        counts = examine(model, tokenizer, queries, settings.engine, settings.evaluation, **how)
        known = {"query": range(len(queries)), "family": [query.family for query in queries], "samples": SAMPLES}
        parts.append(pd.DataFrame({"split": split, **known, **counts}))
    torch.set_num_threads(threads)
    return pd.concat(parts, ignore_index=True)
