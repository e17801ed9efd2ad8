"""The profile in words and tables: all numbers computed."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from repro.experiments.profile.describe import CLASSES, Rule
from repro.experiments.results.tables import number
from repro.files import write_parquet, write_text


def conclusion(
    filed: pd.DataFrame,
    by_samples: pd.DataFrame,
    by_temperature: pd.DataFrame,
    beyond: pd.DataFrame,
    costs: pd.DataFrame,
    used: int,
) -> str:
    """Markdown: what the policy knows, how wrong a profile of `used` samples is about it, what K and the temperature
    change. The tables: `describe.filed`, `sensitivity.summarise` twice, `sensitivity.beyond_noise`, `cost.costs`."""
    shares = [f"{_percent(filed.loc[name], 'share')} {name}" for name in CLASSES]
    spent = costs.loc[f"profile, K = {used}", "steps"]
    text = (
        f"By {used} samples of each training query, {', '.join(shares)}. By the samples of the other seeds "
        f"{filed['wrong'].sum():.0%} of all queries are in the wrong class; {filed['predicted_wrong'].sum():.0%} are "
        f"expected of so many samples, were difficulty a Beta distribution. Such a profile costs {spent:.1f} steps of "
        "training."
    )
    more = [_about_samples(by_samples, used), _about_temperature(by_temperature, beyond)]
    return "\n".join([text, "", *(f"- {each}" for each in more if each)]) + "\n"


def _about_samples(by_samples: pd.DataFrame, used: int) -> str:
    if used not in by_samples.index or by_samples["saving"].isna().any():
        return ""  # NaN: no group at all has a signal
    row, best = by_samples.loc[used], by_samples["saving_charged"].idxmax()
    other = f"{best} does best then ({number(by_samples.loc[best], 'saving_charged', 2)})"
    return (
        f"**How many samples?** The plan of such a profile finds {number(row, 'saving', 2)} times the informative "
        f"groups per rollout that equal groups do, {number(row, 'saving_charged', 2)} times once the profile is "
        f"charged; of the K tried {'none does better then' if best == used else other}."
    )


def _about_temperature(by_temperature: pd.DataFrame, beyond: pd.DataFrame) -> str:
    """The temperature whose classes differ most, and whether the plan of another one is resolved as better."""
    if beyond.empty:
        return ""
    [usual] = by_temperature.index.difference(beyond.index)
    far, better = beyond["class_changed"].abs().idxmax(), beyond[beyond["saving_low"] > 0]
    text = (
        f"**At which temperature?** Profiled at {far:g} instead of {usual:g}, success rates move by "
        f"{number(beyond.loc[far], 'shift', 3, signed=True)} and {by_temperature.loc[far, 'class_changed']:.0%} of "
        f"queries change class, where a second profile at {usual:g} changes "
        f"{by_temperature.loc[usual, 'class_changed']:.0%}"
    )
    if better.empty:
        return text + f". No temperature's plan is resolved as better for training at {usual:g}."
    best = better["saving"].idxmax()
    return text + (
        f". Of the plans for training at {usual:g}, that of a profile at {best:g} is the best, by "
        f"{number(beyond.loc[best], 'saving', 2, signed=True)} on the ratio to equal groups."
    )


def costs_table(costs: pd.DataFrame) -> str:
    """`cost.costs` as Markdown."""
    lines = [
        "| | rollouts | tokens generated | FLOPs | in training steps | seconds on one core |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, row in costs.iterrows():
        seconds = "–" if np.isnan(row["seconds"]) else f"{row['seconds']:.1f}"
        cells = [f"{row['rollouts']:,.0f}", f"{row['tokens']:,.0f}", f"{row['flops']:.3g}", f"{row['steps']:.2f}"]
        lines.append(f"| {name} | {' | '.join([*cells, seconds])} |")
    return "\n".join(lines) + "\n"


def families_table(families: pd.DataFrame) -> str:
    """`describe.families` as Markdown."""
    heads = ["family", "queries", "success rate", *CLASSES, "width of p's interval", "truth inside"]
    lines = [_head(heads)]
    for name, row in families.iterrows():
        cells = [f"{row['queries']:.0f}", number(row, "rate", 2), *(f"{row[each]:.0%}" for each in CLASSES)]
        lines.append(_line([str(name), *cells, f"{row['width']:.2f}", f"{row['covered']:.0%}"]))
    return "\n".join(lines) + "\n"


def filed_table(filed: pd.DataFrame, rule: Rule) -> str:
    """`describe.filed` as Markdown."""
    truly = {
        "trivial": f"below {1 - rule.margin:g}",
        "learnable": f"outside {rule.margin:g} to {1 - rule.margin:g}",
        "unsolvable": f"above {rule.margin:g}",
    }
    heads = ["class by p̂", "share of queries", "expected", "wrongly there: true rate", "share of queries", "expected"]
    lines = [_head(heads, left=(0, 3))]
    for name, row in filed.iterrows():
        shares = (_percent(row, "share"), f"{row['predicted_share']:.0%}")
        wrong = (_percent(row, "wrong", 1), f"{row['predicted_wrong']:.1%}")
        lines.append(_line([str(name), *shares, truly[str(name)], *wrong]))
    return "\n".join(lines) + "\n"


def examples_table(examples: pd.DataFrame) -> str:
    """`describe.examples` as Markdown."""
    samples = int(examples["samples"].iloc[0])
    heads = ["difficulty", "prompt", "answer", "family", f"successes in {samples}, by seed", "group size, by seed"]
    lines = [_head(heads, left=range(len(heads)))]
    for name, row in examples.iterrows():
        lists = [", ".join(str(value) for value in row[column]) for column in ("successes", "sizes")]
        lines.append(_line([str(name), f"`{row['prompt']}`", f"`{row['answer']}`", row["family"], *lists]))
    return "\n".join(lines) + "\n"


def samples_table(by_samples: pd.DataFrame) -> str:
    """`sensitivity.summarise` by K as Markdown: a table against the truth, one of the plan's worth."""
    against = {
        "rank correlation with the truth": lambda row: number(row, "rank_correlation", 2),
        "in the wrong class": lambda row: _percent(row, "wrong_class"),
        "dropped or thinned so": lambda row: f"{row['misfiled']:.0%}",
        "group size off by": lambda row: number(row, "size_error", 2),
        "group size differs": lambda row: _percent(row, "size_changed"),
    }
    worth = {
        "informative groups per 100 rollouts": lambda row: f"{100 * row['informative']:.2f}",
        "the profile charged": lambda row: f"{100 * row['informative_charged']:.2f}",
        "over equal groups": lambda row: number(row, "saving", 2),
        "over equal groups, charged": lambda row: number(row, "saving_charged", 2),
    }
    return _table(by_samples, "K", against) + "\n" + _table(by_samples, "K", worth)


def temperatures_table(by_temperature: pd.DataFrame, beyond: pd.DataFrame) -> str:
    """`sensitivity.summarise` by temperature as Markdown, with what exceeds the noise (`sensitivity.beyond_noise`): a
    table of what changes, one of ranks, group sizes and the plan's worth."""

    def excess(row: pd.Series, name: str, digits: int, scale: float = 1.0) -> str:
        if row.name not in beyond.index:
            return "noise"
        return number(scale * beyond.loc[row.name], name, digits, signed=True)

    changes = {
        "success rate": lambda row: number(row, "rate", 3),
        "class changes": lambda row: _percent(row, "class_changed"),
        "beyond noise": lambda row: excess(row, "class_changed", 1, 100),
        "group size changes": lambda row: _percent(row, "size_changed"),
        "beyond noise ": lambda row: excess(row, "size_changed", 1, 100),
    }
    worth = {
        "rank correlation": lambda row: number(row, "rank_correlation", 2),
        "group size moves by": lambda row: number(row, "size_error", 2),
        "beyond noise": lambda row: excess(row, "size_error", 2),
        "plan over equal groups": lambda row: number(row, "saving", 2),
        "beyond noise ": lambda row: excess(row, "saving", 2),
    }
    return _table(by_temperature, "temperature", changes) + "\n" + _table(by_temperature, "temperature", worth)


def save(output: str, tables: dict[str, pd.DataFrame], texts: dict[str, str]) -> None:
    """`tables` as <name>.parquet, with their index where it has a name, and `texts` as <name>.md."""
    for name, table in tables.items():
        write_parquet(table.reset_index() if table.index.name else table, Path(output) / f"{name}.parquet")
    for name, text in texts.items():
        write_text(text, Path(output) / f"{name}.md")


def _percent(row: pd.Series, name: str, digits: int = 0) -> str:
    if pd.isna(row[name]):
        return "–"
    if pd.isna(row[f"{name}_low"]):
        return f"{row[name]:.{digits}%}"
    return f"{row[name]:.{digits}%} [{row[f'{name}_low']:.{digits}%}, {row[f'{name}_high']:.{digits}%}]"


def _table(table: pd.DataFrame, name: str, cells: dict[str, Callable[[pd.Series], str]]) -> str:
    lines = [_head([name, *cells])]
    lines += [_line([f"{key:g}", *(cell(row) for cell in cells.values())]) for key, row in table.iterrows()]
    return "\n".join(lines) + "\n"


def _head(heads: list[str], left=(0,)) -> str:
    rule = "|".join("---" if place in left else "---:" for place in range(len(heads)))
    return f"{_line(heads)}\n|{rule}|"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
