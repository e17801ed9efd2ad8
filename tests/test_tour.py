"""`make tour`: a sampler from a file, its curves in the terminal, its page, and the picture at the top of README."""

import re
import shlex
import subprocess

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT, complaints
from rich.console import Console

from repro.engine.progress import Silence, Step
from repro.settings import SettingsError, load
from repro.stats.runs import last_of
from repro.tour import __main__ as command
from repro.tour import drawing
from repro.tour.page import answer, rows, trained_on
from repro.tour.sampler import sampler_in
from repro.tour.terminal import HEIGHT, WIDTH, Curves, chart


def test_a_path_is_no_markup_of_the_terminal(tmp_path, monkeypatch):
    def stop(*_, **__):
        raise SettingsError("that far")

    monkeypatch.setattr("repro.training.train", stop)
    file = tmp_path / "x[" / "b]" / "own.py"  # closes a tag that is not open
    file.parent.mkdir(parents=True)
    file.write_text("def mine(r, p, rng): return r\n")
    console = Console(record=True, width=1000)
    with pytest.raises(SettingsError, match="that far"):
        command.tour(file, console)
    assert f"Your sampler: {file}" in console.export_text()


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


def test_a_file_may_have_a_space_in_its_name():
    for file, given in {"": [], "/tmp/my sampler.py": ["/tmp/my sampler.py"]}.items():
        called = ["make", "--dry-run", "--old-file=setup", "--no-print-directory", "tour", f"SAMPLER={file}"]
        last = subprocess.run(called, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
        assert shlex.split(last) == ["exec", "python", "-m", "repro.tour", *given]


def test_the_page_says_so_where_a_sampler_left_nothing_to_train_on():
    settings = load(scale="smoke").with_arms({"grpo": "grpo", "idle": {"title": "Idle", "samplers": [len]}})
    ends = {"step": 4, "accuracy": [0.5, 0.25, 0.5, 0.125], "trained_tokens": [80, 120, 0, 0], "updates": [8, 6, 0, 0]}
    costs = {"paper_tokens": [80, 120, 0, 0], "flops": [6.0, 4.0, 2.0, 2.0]}
    runs = pd.DataFrame({"arm": ["grpo", "grpo", "idle", "idle"], "seed": [0, 1] * 2, **ends, **costs})
    steps = pd.DataFrame({"arm": ["grpo"] * 8 + ["idle"] * 8, "skipped": [False] * 7 + [True] * 9})
    first, _, second = answer(last_of(runs), settings, "idle").partition(". ")
    assert first == "Idle made no update: in every step its sampler left no rollout, or none with an advantage"
    assert second == "What ends +0.000 on seed 0 and −0.125 on seed 1 against GRPO is the base policy."
    grpo, idle = rows(last_of(runs), steps, settings)
    assert grpo["updated"] == "7 of 8" and idle["updated"] == "0 of 8"
    assert idle["costs"] == ["0.00", "0.00", "0.40"] and idle["difference"] == "−0.062"
    some = runs.assign(trained_tokens=[80, 120, 50, 0], updates=[8, 6, 2, 0])
    assert "with 0.25 of the tokens trained on" in answer(last_of(some), settings, "idle")


def test_the_picture_of_a_group_says_what_it_shows():
    group = pd.DataFrame({"drawn": [2, 0, 1, 0], "reward": [1.0, 1.0, 0.0, 0.0]})
    assert trained_on(group, "Own") == "Own trained on 2 of 4 responses to one prompt, on 1 of the 2 rewarded"


@pytest.fixture(scope="module")
def tour(tmp_path_factory):
    """The page of the tour at scale `smoke`, and what was printed."""
    page = tmp_path_factory.mktemp("tour") / "index.html"
    console = Console(record=True, width=200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "SCALE", "smoke")
        patch.setattr(command, "PAGE", page)
        patch.delenv("DISPLAY", raising=False)
        patch.delenv("WAYLAND_DISPLAY", raising=False)
        assert command.tour(command.FILE, console) == 0
    return page, console.export_text()


@pytest.mark.slow
def test_the_tour_ends_in_a_page(tour):
    """Three arms train, the page holds their rows, the figure, a group and the sampler's code."""
    page, printed = tour
    text = page.read_text()
    assert re.findall(r'<th scope="row">(.+?)</th>', text) == ["GRPO", "ZVF", "Shortest"]
    assert "def shortest(" in text and "data-drawn" in text
    [alt] = re.findall(r'<img[^>]* alt="([^"]+)"', text)
    [accuracies] = re.findall(r"highest first: (.+?) – ", alt)
    ends = re.findall(r'scope="row">(.+?)</th><td>(.+?)</td>', text)
    assert sorted(accuracies.split(", ")) == sorted(f"{title} at {accuracy}" for title, accuracy in ends)
    assert re.search(r'aria-label="Shortest trained on \d of 8 responses to one prompt', text)
    assert not re.search(r'(?:src|href)="https?:', text)
    [policy] = re.findall(r'<meta http-equiv="Content-Security-Policy" content="(.+?)">', text)
    assert "default-src 'none'" in policy and "script-src 'none'" in policy
    assert policy.count("'sha256-") == text.count("<style>") == text.partition("</head>")[0].count("<style>") == 2
    assert "Shortest ends" in printed and page.as_uri() in printed


@pytest.mark.slow
def test_the_page_fits_a_phone_which_has_the_panels_below_each_other(tour, browser):
    page, _ = tour
    assert complaints(browser, page) == []
    for width in (390, 1280):
        tab = browser.new_page(viewport={"width": width, "height": 844})
        tab.goto(page.as_uri())
        box = tab.locator("picture img").bounding_box()
        assert (box["height"] > box["width"]) == (width == 390)
        table, whole = tab.evaluate("(b => [b.clientWidth, b.scrollWidth])(document.querySelector('.table'))")
        assert (whole > table) == (width == 390)
        tab.close()
