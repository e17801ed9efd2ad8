"""Sentences with assertions: what a check shows, and that a report names one that no longer holds."""

import json

import numpy as np
import pytest
from test_report import PROVENANCE

from repro.notebook import CHECK, Check, check
from repro.paths import ROOT
from repro.report.html import render


@pytest.fixture
def shown(monkeypatch):
    """What `check` displays."""
    found = []
    monkeypatch.setattr("IPython.display.display", found.append)
    return found


def test_a_check_holds_fails_or_cannot_be_checked(shown):
    check("it-holds", True)
    check("it-fails", lambda: np.bool_(False))
    check("an-arm-is-missing", lambda: {}["zvf"] > 0)
    outcomes = {"it-holds": True, "it-fails": False, "an-arm-is-missing": None}
    assert [(found.name, found.holds) for found in shown] == [*outcomes.items()]
    words = [found._repr_mimebundle_()["text/plain"] for found in shown]
    assert words == [
        "✓ checked: it-holds",
        "✗ no longer holds: it-fails. The text above needs rewriting.",
        "– not checked: an-arm-is-missing, since 'zvf' is missing",
    ]


@pytest.mark.parametrize(
    ("name", "holds", "words"),
    [
        ("Not a name", True, "lower-case letters"),
        ("three", np.ones(3, bool), r"\(3,\) entries"),
        ("wrong", lambda: 1 / 0, "division"),
    ],
)
def test_a_check_that_is_none_is_an_error(shown, name, holds, words):
    with pytest.raises((ValueError, ZeroDivisionError), match=words):
        check(name, holds)
    assert not shown


def executed(*checks: Check) -> dict:
    """A notebook with a cell for each check."""
    cells = [
        {
            "cell_type": "code",
            "id": f"cell-{place}",
            "execution_count": 1,
            "metadata": {},
            "source": "check(…)",
            "outputs": [{"output_type": "display_data", "metadata": {}, "data": entry._repr_mimebundle_()}],
        }
        for place, entry in enumerate(checks)
    ]
    title = {"cell_type": "markdown", "id": "title", "metadata": {}, "source": "# A question?"}
    return {"cells": [title, *cells], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


CHECKS = (Check("it-holds", True), Check("it-fails", False), Check("nor-this", None, "an arm"))


def test_a_report_warns_of_the_checks_that_fail(tmp_path):
    source = tmp_path / "executed.ipynb"
    source.write_text(json.dumps(executed(*CHECKS)))
    render(source, tmp_path / "page.html", "A question?", PROVENANCE)
    page = (tmp_path / "page.html").read_text()
    assert "no longer holds: it-fails" in page and "not checked: nor-this, since an arm is missing" in page
    fails = 'class="check fails"'  # by which `make repro` finds such pages at its end
    assert page.count(fails) == 1 and CHECK not in page and f"grep -lF '{fails}'" in (ROOT / "Makefile").read_text()
