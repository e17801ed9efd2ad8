"""Which proxy of the gradient norm is best, in a table and in words."""

from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd

from repro.experiments.fidelity.probe import UNIFORM, Checkpoint, load_checkpoint, sample_batch
from repro.experiments.fidelity.proxies import PROXIES, WHILE_SAMPLING, Needs
from repro.experiments.fidelity.seconds import TRAINING, seconds
from repro.files import write_parquet
from repro.settings import Settings, Statistics
from repro.stats.intervals import mean_intervals

MEASURES = ("pearson", "pearson_signal", "product")
PAPER = "advantage"  # |A|, what the paper takes
TIE = 0.02  # two products this close, relatively, count as equal; the cheaper proxy then wins
TIMED_ROLLOUTS = 256


def rank(table: pd.DataFrame, statistics: Statistics) -> pd.DataFrame:
    """One row per proxy (index), uniform sampling last: `MEASURES`, each with _low and _high, and uniform's share.

    Mean over a seed's checkpoints, then over seeds, with its bootstrap interval. NaN where a measure is undefined.
    """
    rows = {}
    for name in (*PROXIES, UNIFORM):
        by_seed = table[table["proxy"] == name].groupby("seed")[list(MEASURES)].mean()
        found = mean_intervals({measure: by_seed[measure].to_numpy() for measure in MEASURES}, statistics)
        rows[name] = {
            f"{measure}{end}": value
            for measure, interval in found.items()
            for end, value in zip(("", "_low", "_high"), interval, strict=True)
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("proxy")


def best(ranking: pd.DataFrame, needs: tuple[str, ...] = WHILE_SAMPLING) -> str:
    """The proxy with the least product among those that know only `needs`; of those within `TIE` of it, the one whose
    needs are cheapest, and of these the first in `PROXIES`."""
    known = [name for name, proxy in PROXIES.items() if proxy.needs in needs]
    products = ranking.loc[sorted(known, key=lambda name: get_args(Needs).index(PROXIES[name].needs)), "product"]
    return str((products <= products.min() * (1 + TIE)).idxmax())


def table(ranking: pd.DataFrame, prices: pd.DataFrame) -> str:
    """Markdown: every proxy with what it is worth, what it has to know and what that costs."""
    price = prices.set_index("needs")["share"]
    lines = [
        "| proxy | correlation with the norm | where $A\\neq 0$ | cost, 1 is ideal | knows, beyond $A$ and lengths | "
        "its price, of a training pass |",
        "|---|---:|---:|---:|---|---:|",
    ]
    for name, row in ranking.iterrows():
        cells = [_number(row, measure) for measure in MEASURES]
        if name == UNIFORM:
            lines.append(f"| *uniform sampling, $p=1/N$* | {' | '.join(cells)} | nothing | 0 |")
            continue
        proxy = PROXIES[name]
        share = "0" if proxy.needs == "nothing" else f"{price[proxy.needs]:.2%}"
        lines.append(f"| ${proxy.formula}$ | {' | '.join(cells)} | {proxy.needs} | {share} |")
    return "\n".join(lines) + "\n"


def measures_table(ranking: pd.DataFrame) -> str:
    """Markdown: what every proxy is worth, without its price, which is made of seconds."""
    lines = ["| proxy | correlation with the norm | where A ≠ 0 | cost, 1 is ideal |", "|---|---:|---:|---:|"]
    for name, row in ranking.iterrows():
        label = "*uniform sampling, $p=1/N$*" if name == UNIFORM else _formula(str(name))
        lines.append(f"| {label} | {' | '.join(_number(row, measure) for measure in MEASURES)} |")
    return "\n".join(lines) + "\n"


def prices_note(prices: pd.DataFrame) -> str:
    """What the prices are measured against, in a sentence."""
    row = prices.set_index("needs")
    return (
        f"A training pass takes {row.loc[TRAINING, 'milliseconds']:.2f} ms per rollout here; a scoring pass, to "
        f"be added where the engine does not let a proxy in while it samples, {row.loc['a scoring pass', 'share']:.0%} "
        f"of that; the exact norms themselves {row.loc['the gradient', 'share']:.0%}."
    )


def conclusion(ranking: pd.DataFrame, prices: pd.DataFrame, checkpoints: int) -> str:
    """Which proxy is best, what it is worth and what it costs; Markdown, computed."""
    if ranking["product"].isna().any():
        return "For some seed no probed rollout has an advantage: raise `fidelity.queries` to say which proxy is best."
    name, every = best(ranking), best(ranking, tuple({proxy.needs for proxy in PROXIES.values()}))
    proxy, row, paper, uniform = PROXIES[name], ranking.loc[name], ranking.loc[PAPER], ranking.loc[UNIFORM]
    price = prices.set_index("needs")["share"].get(proxy.needs, 0.0)
    text = (
        f"Of what sampling can keep at one number a token, {_formula(name)} knows the gradient norm best: to reach the "
        f"same error its draws cost {_number(row, 'product')} times what draws by the norm itself would, those by "
        f"$\\lvert A\\rvert$ {_number(paper, 'product')} and uniform ones {_number(uniform, 'product')} "
        f"(Theorem 4.2, mean over {checkpoints} checkpoints). "
        f"Its correlation with the norm is {_number(row, 'pearson')}, that of $\\lvert A\\rvert$ "
        f"{_number(paper, 'pearson')}; where $A\\neq 0$, {_number(row, 'pearson_signal')} and "
        f"{_number(paper, 'pearson_signal')}. Beyond advantages and lengths it needs {proxy.needs}, {price:.2%} of a "
        "training pass once they are at hand. "
    )
    if every == name:
        return text + f"No dearer proxy is better by more than {TIE:.0%}."
    return text + f"The dearer {_formula(every)} comes to {_number(ranking.loc[every], 'product')}."


def measure_prices(checkpoint: Checkpoint) -> pd.DataFrame:
    """Seconds, see repro.experiments.fidelity.seconds, of rollouts like those that `checkpoint` was probed with."""
    model, tokenizer = load_checkpoint(checkpoint)
    settings = checkpoint.settings
    batch, _ = sample_batch(model, tokenizer, settings, checkpoint.seed, checkpoint.step)
    rows, engine = np.arange(min(TIMED_ROLLOUTS, len(batch.prompts_N))), settings.engine
    return seconds(
        model,
        batch,
        rows,
        pad=tokenizer.pad_token_id,
        temperature=engine.temperature,
        slice_tokens=engine.slice_tokens,
    )


def last_checkpoint(sample: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """The rows of the last checkpoint of `fidelity.arms`' first arm with the first seed."""
    rows = sample[(sample["arm"] == settings.fidelity.arms[0]) & (sample["seed"] == settings.seeds[0])]
    return rows[rows["step"] == rows["step"].max()]


def save(output: str, tables: dict[str, pd.DataFrame], settings: Settings) -> None:
    """summary.parquet and token_sum.parquet whole, sample.parquet of the first seed; see
    repro.experiments.fidelity.probe."""
    sample = tables["sample"]
    kept = {**tables, "sample": sample[sample["seed"] == settings.seeds[0]]}
    for name, frame in kept.items():
        write_parquet(frame, Path(output) / f"{name}.parquet")


def _formula(name: str) -> str:
    """For a reader who has not met d: under the sequence mean it is T."""
    return f"${PROXIES[name].formula.replace('/d', '/T')}$"


def _number(row: pd.Series, name: str) -> str:
    if pd.isna(row[name]):
        return "–"
    if pd.isna(row[f"{name}_low"]):
        return f"{row[name]:.2f}"
    return f"{row[name]:.2f} [{row[f'{name}_low']:.2f}, {row[f'{name}_high']:.2f}]"
