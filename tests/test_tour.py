"""`make tour`: a sampler from a file, its page, and the picture at the top of README."""

import re
import sys

import numpy as np
import pytest
from conftest import ROOT, complaints

from repro.arms import sampler_in
from repro.pipeline import __main__ as command
from repro.pipeline import tour as touring
from repro.report import picture
from repro.settings import SettingsError


def test_the_file_defines_one_sampler(tmp_path):
    assert sampler_in(ROOT / "notebooks" / "tutorials" / "own_sampler.py").__name__ == "shortest"
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


def test_a_sampler_that_cannot_work_is_one_sentence_before_training(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(touring, "execute", None)
    file = tmp_path / "broken.py"
    file.write_text("def broken(rollouts, progress, rng):\n    return rollouts.absent\n")
    assert command.main(["tour", str(file)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("repro: ") and "arm mine: sampler broken: " in error and error.count("\n") == 1


def test_the_picture_is_of_the_shipped_policy_and_its_numbers_agree():
    """p ∝ |A|/√c and A relative to the group, recomputed from the rewards and costs in the file."""
    text = picture.PICTURE.read_text()
    assert picture.policy_hash() in text, "the shipped policy changed: run `python -m repro.report.picture`"
    rows = re.findall(
        r'data-reward="(.+?)" data-advantage="(.+?)" data-cost="(.+?)" data-p="(.+?)" data-drawn="(.+?)"', text
    )
    reward_N, advantage_N, cost_N, p_N, drawn_N = np.array(rows, float).T
    assert len(rows) == picture.GROUP == drawn_N.sum()
    assert advantage_N == pytest.approx((reward_N - reward_N.mean()) / reward_N.std(), abs=1e-3)
    expected_N = np.abs(advantage_N) / np.sqrt(cost_N)
    assert p_N == pytest.approx(expected_N / expected_N.sum(), abs=1e-3)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


@pytest.fixture(scope="module")
def page(tmp_path_factory, tools):
    """The page of the tour at scale `smoke`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(tools / "python"))  # of kernels
        patch.setenv("REPRO_ROOT", str(ROOT))  # which a run sets, for good
        patch.setattr(touring, "FOLDER", tmp_path_factory.mktemp("tour"))
        return touring.tour(ROOT / "notebooks" / "tutorials" / "own_sampler.py", "smoke")


@pytest.mark.slow
def test_the_tour_ends_in_a_page_whose_answer_comes_first(page):
    """Three arms train; sentence and figure, then the rest, with the sampler's group and nothing from elsewhere."""
    text = page.read_text()
    said = r"(?:Yes|No|Not shown): Shortest (?:against GRPO is inconclusive|ends \w+ than GRPO), .\d\.\d{3} "
    assert re.search(said, text).start() < text.index("<img") < text.index("GRPO, ZVF and yours")
    assert len(re.findall(r'alt="[^"]*What does Shortest reach, for which cost\?', text)) == 1
    assert "times_trained" in text and not re.search(r'src="https?:', text)


@pytest.mark.slow
def test_the_page_fits_a_phone_which_has_the_panels_below_each_other(page, browser):
    assert complaints(browser, page) == []
    for width in (390, 1280):
        tab = browser.new_page(viewport={"width": width, "height": 844}, java_script_enabled=False)  # which redraws it
        tab.goto(page.as_uri())
        box = tab.locator("picture img").first.bounding_box()
        assert (box["height"] > box["width"]) == (width == 390)
        tab.close()
