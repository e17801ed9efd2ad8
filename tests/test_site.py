"""The documentation site builds without a warning, and none of its pages asks anything of the network."""

import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT, complaints

pytest.importorskip("mkdocs", reason="the docs extra is not installed: `make extra-docs`")
LOADED = re.compile(r'<(?:script|img|iframe|source)\b[^>]*\bsrc="(?:https?:)?//|<link\b[^>]*\bhref="(?:https?:)?//')


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """By the command of `make docs`, whose `--strict` counts the warnings that are logged: with `--quiet`, none."""
    folder = tmp_path_factory.mktemp("site")
    [words] = re.findall(r"^\t.*?\bmkdocs (build .*?) &&", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "--strict" in words and "--quiet" not in words
    command = [sys.executable, "-m", "mkdocs", *words.split(), "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and not done.stderr, done.stderr[-4000:]
    return folder


def test_no_page_loads_anything_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    assert [page.name for page in pages if LOADED.search(page.read_text())] == []
    assert not re.search(r"url\([\"']?https?:|@import", (site / "site" / "site.css").read_text())


def test_equations_are_mathml_and_docstrings_keep_their_columns(site):
    methods = (site / "methods.html").read_text()
    assert methods.count("<math") > 50 and "arithmatex" not in methods and "$$" not in methods
    rollouts = (site / "api" / "methods.html").read_text()
    assert 'id="repro.methods.rollouts.Rollouts"' in rollouts
    assert re.search(r"group_N +int +rollouts of one query", re.sub(r"<[^>]+>", "", rollouts))
    plans = re.sub(r"<[^>]+>", "", (site / "api" / "plans.html").read_text())
    assert "&gt;&gt;&gt; [next(plan).query for _ in range(4)]\n[2, 0, 1, 3]" in plans  # an example, and no link


def test_links_out_of_the_pages_lead_to_pages_that_show_the_files(site):
    methods = (site / "methods.html").read_text()
    assert 'href="api/samplers.html#repro.methods.samplers.cost_aware"' in methods
    assert 'href="files/params.yaml.html"' in methods and (site / "files" / "params.yaml.html").exists()


def test_a_tutorials_figure_says_its_finding_and_has_a_picture_for_phones(site):
    tour = site / "notebooks/tutorials/tour.html"
    figures = re.findall(r"<picture>.*?</picture>", tour.read_text())
    assert len(figures) == 1
    for figure in figures:
        assert "What does Mine reach, for which cost?" in figure
        narrow = re.search(r'<source media="\(max-width: 37.5em\)" srcset="([\w.-]+)">', figure)[1]
        assert (tour.parent / narrow).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["index.html", "study.html", "methods.html", "notebooks/tutorials/tour.html"])
def test_a_page_fits_a_phone_and_complains_of_nothing(site, browser, name):
    assert complaints(browser, site / name) == []


def test_search_finds_a_files_ending_a_method_and_a_name_with_an_ampersand(site, browser):
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    first = {"jsonl": "your_rollouts.html", "W&B": "data.html", "Rollouts.take": "api/methods.html"}
    for words, expected in first.items():
        page.fill("input.md-search__input", "")
        page.click("input.md-search__input")
        page.keyboard.type(words)
        found = page.locator(f'.md-search-result__item:first-child a[href*="{expected}"]').first
        found.wait_for(state="attached", timeout=60_000)
    page.close()
