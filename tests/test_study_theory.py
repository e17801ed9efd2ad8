"""The theory verdicts together: every group of params.yaml, every claim, in order."""

import pandas as pd
import pytest

from repro.experiments.results import theory
from repro.settings import load
from repro.stats.verdicts import at_least, at_most, save

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
