"""README and docs/: tables are the generated files' text, paths exist, the examples run."""

import json
import re
import runpy
import subprocess
import tomllib

import numpy as np
import pandas as pd
import pytest
import yaml
from conftest import ROOT
from test_store_panels import trained_here

from repro import settings as settings_module
from repro.plots.style import to_svg
from repro.report.front_page import BLOCK, PICTURE, filled, front_picture, on_colab
from repro.runs import make

PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "notebooks" / "README.md")
README = (ROOT / "README.md").read_text()
SAMPLERS = (ROOT / "docs/samplers.md").read_text()
WORDS, LINES = 850, 110  # outside its table
TRACKED = "benchmarks|configs|docs|environments|figures|notebooks|src|tables|tests"
NAMED = re.compile(rf"(?<![\w/.]){'(?:' + TRACKED + ')'}/[\w./-]*\w")  # a path below the root, wherever it is named


def test_the_readme_is_short_and_has_one_table_the_claims():
    text = BLOCK.sub("", README)
    assert len(text.split()) <= WORDS and len(text.splitlines()) <= LINES
    blocks = ["runs/promise.md", "runs/promise_rates.md", "runs/front_claims.md"]
    assert [block[2] for block in BLOCK.finditer(README)] == blocks
    assert len(re.findall(r"^\|[-:| ]+\|$", README, re.MULTILINE)) == 1


def test_every_generated_table_is_the_files_text():
    for page in PAGES:
        assert filled(page.read_text(), page.parent) == page.read_text(), f"{page.name}: run `make readme`"


def test_a_cell_of_a_generated_table_is_read_by_its_row(tmp_path):
    (tmp_path / "runs").mkdir()
    table = "| arm | verdict |\n|:--|:--|\n| [D²S, by \\|A\\|](m.md#x) | lower at 27% |\n| GRPO | baseline |\n"
    (tmp_path / "runs/x.md").write_text(table)
    page = "| a | <!-- runs/x.md: {} -->{}<!-- end --> (b) | c |"
    for row, words in (("D²S, by \\|A\\|", "lower at 27%"), ("GRPO", "baseline")):
        assert filled(page.format(row, "old"), root=tmp_path) == page.format(row, words)
    with pytest.raises(KeyError, match="PODS"):
        filled(page.format("PODS", ""), root=tmp_path)


def test_links_of_a_generated_table_lead_from_the_page_that_shows_it(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/x.md").write_text("[a](y.md#b) [c](../docs/z.md) [d](https://e.org)\n")
    page = "<!-- begin runs/x.md -->\n{}\n<!-- end runs/x.md -->"
    shown = "[a](../runs/y.md#b) [c](../docs/z.md) [d](https://e.org)"
    assert filled(page.format("old"), tmp_path / "docs", tmp_path) == page.format(shown)
    assert "[a](runs/y.md#b) [c](docs/z.md)" in filled(page.format("old"), tmp_path, tmp_path)


def test_the_badge_opens_the_tour_of_a_repository_on_github():
    opened = "https://colab.research.google.com/github/me/repro/blob/main/notebooks/tutorials/tour.ipynb"
    assert re.findall(r"https://colab[^)]*", on_colab(README, "git@github.com:me/repro.git")) == [opened]
    assert on_colab(README, "https://github.com/me/repro/") == on_colab(README, "git@github.com:me/repro.git")
    assert on_colab(README, "") == on_colab(README, "https://example.org/me/repro") == README
    assert (ROOT / opened.partition("/main/")[2]).is_file()


def test_the_picture_is_of_the_tables_arms_and_their_differences():
    """Another machine's last bits may move a line by less than can be seen."""
    figure = front_picture(settings_module.load(scale="cpu"))
    lines = [line for line in (ROOT / "runs/prices.md").read_text().splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[3:]]  # without the baseline's row
    left, right = figure.axes
    labels = [label.get_text() for label in left.get_yticklabels() if label.get_fontweight() != "bold"]
    assert labels == [arm for arm, *_ in table] and "D³S" in labels
    for ax, place in ((left, 1), (right, 3)):  # the table's columns at temperature 1
        drawn = {tuple(np.round(line.get_xdata(), 3)) for line in ax.lines}
        row = next(row for row in table if row[0] == "D³S")
        assert tuple(map(float, re.findall(r"[+-][\d.]+", row[place])[1:])) in drawn
    stored, made = (
        [float(number) for number in re.findall(r"-?\d+\.\d+", re.sub(r'(id|href|clip-path)="[^"]*"', "", text))]
        for text in (PICTURE.read_text(), to_svg(figure))
    )
    assert stored == pytest.approx(made, abs=0.02), "run `make readme`"
    assert "docs/images/front.svg" in README and "dc:date" not in PICTURE.read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_that_are_named_exist(page):
    """The log is history, and may name what is gone."""
    example = "src/repro/methods/samplers/shortest.py"
    for name in () if page.name == "LOG.md" else NAMED.findall(page.read_text()):
        placeholder = re.search(r"[A-Z]{4}", name.replace("README", "")) or name == example
        assert placeholder or (ROOT / name).exists(), name


def test_every_method_has_its_place_among_the_equations():
    """Of those that git tracks: one that is being tried needs no equation yet. Without git, all of them."""
    text = (ROOT / "docs/methods.md").read_text()
    listed = subprocess.run(["git", "ls-files", "src/repro/methods"], cwd=ROOT, capture_output=True, text=True)
    tracked = {ROOT / name for name in listed.stdout.splitlines()}
    for package in ("plans", "rewards", "filters", "memories", "advantages", "samplers", "objectives"):
        paths = set((ROOT / "src/repro/methods" / package).glob("[a-z]*.py"))
        for path in paths & tracked if tracked else paths:
            link = f"(../src/repro/methods/{package}/{path.name})"
            assert link in text, f"docs/methods.md: add what {path.stem} does, with a link, {link}"


def test_the_tree_names_packages_that_exist():
    tree = (ROOT / "docs/architecture.md").read_text().split("## The tree")[1]
    packages = re.search(r"^src/repro/\n(.*?)^configs/", tree, re.DOTALL | re.MULTILINE)[1]
    here = {path.name for path in (ROOT / "src/repro").rglob("*")}
    named = re.findall(r"\b([a-z_]+)(?:/|\.py)", packages)
    assert len(named) > 30
    for name in named:
        assert name in here or f"{name}.py" in here, name


def test_the_headline_agrees_with_the_committed_tables():
    """With three seeds nothing is significant; ZVF ends highest, for twice GRPO's tokens; greedy accuracy doubles."""
    head, _, *rows = (
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in (ROOT / "tables/accuracy.md").read_text().splitlines()
    )
    table = pd.DataFrame(rows, columns=head).set_index("arm")
    assert len(table) == 18 and not table["significant"].str.startswith(("higher", "lower")).any()
    assert table["final accuracy"].str.split().str[0].astype(float).idxmax() == "ZVF"
    evaluations = pd.read_parquet(ROOT / "tables/evaluations.parquet").sort_values("step").groupby(["arm", "seed"])
    first, last = evaluations.first().groupby("arm").mean(), evaluations.last().groupby("arm").mean()
    assert round(last.loc["zvf", "trained_tokens"] / last.loc["grpo", "trained_tokens"]) == 2
    assert last.loc["grpo", "greedy"] > 2 * first.loc["grpo", "greedy"]
    assert evaluations.size()["zvf"].index.tolist() == [0, 1, 2]


def test_citations_agree():
    """README links to the papers of CITATION.cff; the version is pyproject's."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for paper in citation["references"]:
        [[number]] = [re.findall(r"[\d.]+", entry["value"]) for entry in paper["identifiers"]]
        assert f"arxiv.org/abs/{number}" in README and paper["title"] and paper["authors"]


def test_the_example_sampler_is_the_one_that_the_pipeline_trains():
    from test_pipeline import ARM, SAMPLER

    assert SAMPLER.strip() in SAMPLERS and ARM.removesuffix("more_arms:") in SAMPLERS


@pytest.mark.slow
def test_the_example_cell_trains(monkeypatch):
    """As printed, on two seeds and two steps of scale `smoke`, in this process."""
    small = settings_module.load(scale="smoke", seeds=[0, 1])
    small = small.model_copy(update={"engine": small.engine.model_copy(update={"steps": 2, "workers": 1})})
    monkeypatch.setattr(settings_module, "load", lambda scale, seeds: {"tutorial": small}[scale])
    monkeypatch.setattr(make, "train_runs", trained_here)
    names: dict = {}
    lines = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1].strip().splitlines()
    exec("\n".join([*lines[:-1], "shown = " + lines[-1]]), names)
    assert names["shown"].table.index.tolist() == ["GRPO", "ZVF", "Shortest"]
    steps = names["shown"].tables["steps"].query("arm == 'mine' and not skipped")
    assert (steps["selected_rollouts"] == 16).all() and len(steps)


def test_a_retired_word_is_found_where_a_reader_meets_it():
    """In prose, a cell's string and a docstring, outside code, comments and names."""
    words = runpy.run_path(str(ROOT / "docs/site/words.py"))
    retired = words["retired"]((ROOT / "docs/style.md").read_text())
    code = '# beside\nbeside = 1\n\ndef f():\n    """Told\n    from it."""\n    return "`beside`", f"{f} is open"\n'
    cells = [{"cell_type": "markdown", "source": ["One\n", "`dear` thing"]}, {"cell_type": "code", "source": [code]}]
    assert words["found"](words["strings"](code), retired) == [(5, "Told from"), (7, "is open")]
    assert words["found"](words["cells"](json.dumps({"cells": cells})), retired) == [(2, "Told from"), (2, "is open")]
    assert words["found"](words["values"]("a: dear  # dear\n# dear\n"), retired) == [(1, "dear")]
