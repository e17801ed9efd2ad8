"""The table of theory verdicts: every group of params.yaml, every claim, what does not hold named."""

import json

import pytest

from repro.experiments.results import theory
from repro.settings import load
from repro.theory.verdict import at_least, at_most

SETTINGS = load(scale="smoke")
GROUPS = list(type(SETTINGS.theory).model_fields)


@pytest.fixture
def root(tmp_path):
    for group in GROUPS:
        (tmp_path / group).mkdir()
        found = [
            at_most(f"|{group}| is small", 1.0, 0.5, (0.4, 0.6)),
            at_least(f"{group} is large", 1.0, 0.9, (0.8, 1.0)),
            at_most(f"{group} is tiny", 0.1, 0.5, (0.4, 0.6)),
        ]
        (tmp_path / group / "verdict.json").write_text(json.dumps(found))
    return tmp_path


def test_every_claim_of_every_group_is_there_and_what_does_not_hold_is_named(root):
    found = theory.verdicts(SETTINGS, root)
    assert found["group"].tolist() == [group for group in GROUPS for _ in range(3)]
    assert found["outcome"].tolist() == ["holds", "not shown", "refuted"] * len(GROUPS)
    assert found.loc[0, ["low", "high", "expected"]].tolist() == [0.4, 0.6, 1.0]
    text = theory.tally(found)
    assert f"{3 * len(GROUPS)} claims" in text and f"{len(GROUPS)} hold, {len(GROUPS)} are refuted" in text
    assert f"Refuted: {GROUPS[0]} is tiny" in text and f"Not shown: {GROUPS[0]} is large" in text


def test_the_table_escapes_what_would_break_it(root):
    lines = theory.table(theory.verdicts(SETTINGS, root)).splitlines()
    assert (
        lines[2]
        == f"| {GROUPS[0]} | \\|{GROUPS[0]}\\| is small | holds | 1 | 0.5 | 0.4 to 0.6 | interval <= expected |"
    )


def test_a_group_that_was_not_run_is_named_with_its_command(tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"dvc repro theory@{GROUPS[0]}"):
        theory.verdicts(SETTINGS, tmp_path)
