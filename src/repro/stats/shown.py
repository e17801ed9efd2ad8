"""Tables of a notebook as its report shows them: words in place of the identifiers that the code uses."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from repro.stats.tables import markdown
from repro.stats.verdicts import Verdict, frame, with_words

CLAIMS = ("claim", "outcome", "expected", "value", "low", "high", "tolerance", "rule")


def in_words(table: pd.DataFrame, words: Mapping[Any, str]) -> pd.DataFrame:
    """`table` with `words` in place of identifiers: in the heads of columns and rows at every level, in the names of
    levels, and in the cells."""
    shown = table.rename(columns=words, index=words).rename_axis(index=words, columns=words)
    return shown.map(lambda value: words.get(value, value) if isinstance(value, str) else value)


def claims_table(verdicts: Iterable[Verdict], group: str) -> str:
    """The claims of configs/claims/theory/<group>.yaml in their whole words, as a Markdown table; without a column for
    tolerances where no rule has one."""
    table = with_words(frame(verdicts), group)
    table["rule"] = table["rule"].str.replace("<=", "≤").str.replace(">=", "≥")
    named = {name: name for name in CLAIMS if name != "tolerance" or table["tolerance"].notna().any()}
    return markdown(table, named, dict.fromkeys(("expected", "value", "low", "high"), ".3g") | {"tolerance": ".0%"})
