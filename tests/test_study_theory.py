"""The theory verdicts together: every group of params.yaml, every claim, in order."""

import pandas as pd
import pytest

from repro.experiments.results import theory
from repro.settings import load
from repro.stats.shown import claims_table, in_words
from repro.stats.verdicts import at_least, at_most, save, within, words

SETTINGS = load(scale="smoke")
GROUPS = list(type(SETTINGS.theory).model_fields)


def test_every_claim_of_every_group_is_there(tmp_path):
    for group in GROUPS:
        rows = [
            at_most(f"{group}-small", 1.0, 0.5, (0.4, 0.6)),
            at_least(f"{group}-large", 1.0, 0.9, (0.8, 1.0)),
            at_most(f"{group}-tiny", 0.1, 0.5, (0.4, 0.6)),
        ]
        save(tmp_path / group, {}, rows)
    gathered = theory.verdicts(SETTINGS, tmp_path)
    assert gathered["group"].tolist() == [group for group in GROUPS for _ in range(3)]
    assert gathered["outcome"].tolist() == ["holds", "not shown", "refuted"] * len(GROUPS)
    assert gathered.loc[0, ["id", "low", "high", "expected"]].tolist() == [f"{GROUPS[0]}-small", 0.4, 0.6, 1.0]
    assert pd.api.types.is_float_dtype(gathered["tolerance"])


def test_a_group_that_was_not_run_is_named_with_its_command(tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"dvc repro theory@{GROUPS[0]}"):
        theory.verdicts(SETTINGS, tmp_path)


def test_a_table_is_shown_in_words_at_every_level():
    columns = pd.MultiIndex.from_product([["best_size"], ["min", 0.5]], names=[None, "kind"])
    table = pd.DataFrame([[1.5, "d1s"]], index=pd.Index(["sgpo"], name="plan"), columns=columns)
    shown = in_words(table, {"best_size": "best G", 0.5: "median", "sgpo": "sGPO", "d1s": "D¹S", "plan": "rule"})
    assert shown.columns.tolist() == [("best G", "min"), ("best G", "median")]
    assert shown.index.tolist() == ["sGPO"] and shown.index.name == "rule" and shown.columns.names == [None, "kind"]
    assert shown.iloc[0].tolist() == [1.5, "D¹S"] and table.iloc[0].tolist() == [1.5, "d1s"]


def test_claims_are_whole_sentences_and_rules_are_as_in_print():
    ids = list(words("sgd"))[:2]
    plain = claims_table([at_most(id, 1.0, 0.5, (0.4, 0.6)) for id in ids], "sgd")
    assert all(words("sgd")[id] in plain for id in ids) and "tolerance" not in plain and "interval ≤ expected" in plain
    with_tolerance = claims_table(
        [within(ids[0], 2.0, 2.1, (1.9, 2.2), 0.2), at_least(ids[1], 1.0, 2.0, (1.5, 3))], "sgd"
    )
    assert "20%" in with_tolerance and "interval ≥ expected" in with_tolerance and "–" in with_tolerance
