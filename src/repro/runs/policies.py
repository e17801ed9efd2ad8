"""The base policies of the design, in git, of a language model its adapters; with what each answers before training."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch

from repro import paths
from repro.engine.backends.load import ADAPTERS, assemble, fetch
from repro.engine.evaluate import examine
from repro.files import write_parquet, write_whole
from repro.policy.adapters import load_learner, trained
from repro.policy.base import make_base_policy, tune
from repro.policy.model import ensure_tokenizer, save_policy
from repro.runs.design import Cell, Design, of_language_model, settings_of
from repro.settings import Settings
from repro.stats import panels
from repro.tasks.queries import make_pools

HISTORY = "pretraining.parquet"
SAMPLES, FEWER = 64, 16  # of each held-out query; of a language model's, whose tokens cost a thousand times as much


def policy_of(design: Design, cell: Cell, say: Callable = print) -> Path:
    """The folder of the cell's base policy, in git; pre-trained where it is not there yet. A language model's is put
    together from its package and the adapters in git. ModelMissing where the package is not installed."""
    folder = paths.BASE_POLICIES / cell.policy
    if of_language_model(design, cell.panel):
        return _of_adapters(folder, settings_of(design, cell), say)
    if not (folder / "config.json").exists():
        first = next(panel for panel, entry in design.panels.items() if cell.policy in entry.policies)
        settings = settings_of(design, Cell(first, cell.policy, "", 0))
        say(f"base policy {cell.policy} is not there: pre-training it takes minutes")
        model, history = make_base_policy(settings.policy, make_pools(settings.task), say)
        save_policy(model, ensure_tokenizer(settings.policy.source), folder)
        write_parquet(history, folder / HISTORY)
        write_parquet(answers_of(folder, settings), folder / panels.BASE)
    return folder


def _of_adapters(folder: Path, settings: Settings, say: Callable) -> Path:
    """The whole language model whose adapters are in `folder`; they are tuned, in minutes, where they are not."""
    from safetensors.torch import save

    source = settings.policy.source
    if settings.policy.rank is None:
        return fetch(source, settings.engine.dtype)
    if not (folder / ADAPTERS).exists():
        say(f"base policy {folder.name} is not there: tuning its adapters takes minutes")
        kept = paths.SCRATCH / f"{folder.name}.pt"
        model, tokenizer, history = tune(settings.policy, make_pools(settings.task), fetch(source), kept, say)
        weights = {name: values.half() for name, values in trained(model).items()}
        tokenizer.save_pretrained(folder)
        write_parquet(history, folder / HISTORY)
        write_whole(folder / ADAPTERS, lambda partial: partial.write_bytes(save(weights)))
    whole = assemble(source, folder)
    if not (folder / panels.BASE).exists():
        write_parquet(answers_of(whole, settings), folder / panels.BASE)
    return whole


def answers_of(folder: Path, settings: Settings) -> pd.DataFrame:
    """A row per held-out query, of both splits: split, query, family, samples, successes and tokens (sums), truncated,
    greedy (whether the likeliest response is right)."""
    model, tokenizer = load_learner(folder, settings.engine)
    pools, threads, parts = make_pools(settings.task, pretraining=False), torch.get_num_threads(), []
    torch.set_num_threads(1)
    samples = SAMPLES if settings.engine.adapter is None else FEWER
    for split, queries in (("held-out", pools.evaluation), ("harder", pools.harder)):
        if not queries:
            continue
        how = {"samples": samples, "seed": settings.policy.seed}
        counts = examine(model, tokenizer, queries, settings.engine, settings.evaluation, **how)
        known = {"query": range(len(queries)), "family": [query.family for query in queries], "samples": samples}
        parts.append(pd.DataFrame({"split": split, **known, **counts}))
    torch.set_num_threads(threads)
    return pd.concat(parts, ignore_index=True)
