"""`make tour`: a sampler from a file, its curves in the terminal, its page, and the picture at the top of README."""

import re

import numpy as np
import pytest
from conftest import ROOT
from rich.console import Console

from repro.engine.progress import Silence, Step
from repro.settings import SettingsError
from repro.tour import __main__ as command
from repro.tour import drawing
from repro.tour.sampler import sampler_in
from repro.tour.terminal import HEIGHT, WIDTH, Curves, chart


def test_the_file_defines_one_sampler(tmp_path):
    assert sampler_in(ROOT / "examples" / "own_sampler.py").__name__ == "shortest"
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np\nfrom math import sqrt\n\ndef _helper(): ...\n\ndef mine(r, p, rng): return r\n"
    )
    assert sampler_in(file)("batch", 0.0, None) == "batch"
    for text, sentence in {
        "x = 1": "defines none",
        "def a(): ...\ndef b(): ...": "defines a, b",
        "1 / 0": "ZeroDivisionError",
        "def": "SyntaxError",
    }.items():
        file.write_text(text)
        with pytest.raises(SettingsError, match=sentence):
            sampler_in(file)
    with pytest.raises(SettingsError, match="is not a file"):
        sampler_in(tmp_path / "absent.py")


def test_a_sampler_that_cannot_work_is_one_sentence_before_training(tmp_path, capsys):
    file = tmp_path / "broken.py"
    file.write_text("def broken(rollouts, progress, rng):\n    return rollouts.absent\n")
    assert command.main([str(file)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("tour: ") and "arms.broken" in error and error.count("\n") == 1
    file.write_text("def zvf(rollouts, progress, rng):\n    return rollouts\n")
    assert command.main([str(file)]) == 1


def test_the_terminal_takes_what_training_tells():
    curves = Curves({"cost-aware": "Cost-aware"}, Console(force_terminal=True, width=100))
    for seed, accuracies in ((3, {0: 0.25, 1: None, 3: 0.5, 12: 1.0}), (4, {0: 0.75})):
        for step, accuracy in accuracies.items():
            curves.watch(Step("cost-aware", seed, step, 12, accuracy, left=9.4))
    curves.watch(Silence(40.0, "training"))
    assert curves.points["cost-aware", 3] == {0: 0.25, 3: 0.5, 12: 1.0} and curves.last == 12
    assert curves.curve("cost-aware") == {0: 0.5, 3: 0.5, 12: 1.0} and curves.left == "about 9 s left"


def test_the_chart_puts_marks_where_the_numbers_are():
    rows = chart([{0: 0.2, 12: 0.42}], 12).plain.splitlines()
    assert rows[1].startswith(" 0.44") and rows[HEIGHT].startswith(" 0.18")
    marks = [(row, line.index("●") - 7) for row, line in enumerate(rows) if "●" in line]
    assert marks == [(2, WIDTH - 1), (HEIGHT - 1, 0)]


def test_the_picture_is_of_the_shipped_policy_and_its_numbers_agree():
    """p ∝ |A|/√c and A relative to the group, recomputed from the rewards and costs in the file."""
    text = drawing.PICTURE.read_text()
    assert drawing.policy_hash() in text, "the shipped policy changed: run `python -m repro.tour.drawing`"
    rows = re.findall(
        r'data-reward="(.+?)" data-advantage="(.+?)" data-cost="(.+?)" data-p="(.+?)" data-drawn="(.+?)"', text
    )
    reward_N, advantage_N, cost_N, p_N, drawn_N = np.array(rows, float).T
    assert len(rows) == drawing.GROUP == drawn_N.sum()
    assert advantage_N == pytest.approx((reward_N - reward_N.mean()) / reward_N.std(), abs=1e-3)
    expected_N = np.abs(advantage_N) / np.sqrt(cost_N)
    assert p_N == pytest.approx(expected_N / expected_N.sum(), abs=1e-3)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.slow
def test_the_tour_ends_in_a_page(tmp_path, monkeypatch, capsys):
    """At scale `smoke`: three arms train, the page holds their rows, the figure, a group and the sampler's code."""
    monkeypatch.setattr(command, "SCALE", "smoke")
    monkeypatch.setattr(command, "PAGE", tmp_path / "index.html")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert command.main([]) == 0
    page = (tmp_path / "index.html").read_text()
    assert re.findall(r'<th scope="row">(.+?)</th>', page) == ["GRPO", "ZVF", "Shortest"]
    assert page.count("<svg") == 2 and "def shortest(" in page and "data-drawn" in page
    assert not re.search(r'(?:src|href)="https?:', page)
    printed = capsys.readouterr().out
    assert "Shortest ends" in printed and (tmp_path / "index.html").as_uri() in printed
