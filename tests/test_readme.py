"""README and docs/: tables are the generated files' text, paths exist, the examples run."""

import re
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from conftest import ROOT

from repro import arms
from repro import settings as settings_module
from repro.plots.style import to_svg
from repro.report.front_page import BLOCK, PICTURE, filled, front_picture

PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "notebooks" / "README.md")
README = (ROOT / "README.md").read_text()
WORDS = 1200
TRACKED = "benchmarks|configs|docs|environments|figures|launch|notebooks|src|tables|tests"
NAMED = re.compile(rf"(?<![\w/.]){'(?:' + TRACKED + ')'}/[\w./-]*\w")  # a path below the root, wherever it is named


def test_the_readme_is_short_and_has_one_table():
    assert len(README.split()) <= WORDS
    assert [block[2] for block in BLOCK.finditer(README)] == ["runs/equal_cost.md"]
    assert len(re.findall(r"^\|[-:| ]+\|$", README, re.MULTILINE)) == 1


def test_every_generated_table_is_the_files_text():
    blocks = {block[2] for page in PAGES for block in BLOCK.finditer(page.read_text())}
    assert blocks == {
        "tables/conclusion.md",
        "tables/base_policy.md",
        "tables/front.md",
        "runs/mixes.md",
        "runs/longer.md",
        "runs/sharpening.md",
        "runs/surface.md",
        "runs/exploratory.md",
        "runs/language_model_trained.md",
        "tables/profiled.md",
        "tables/drift.md",
        "tables/fidelity.md",
        "tables/noise_floor.md",
        "tables/claims_tally.md",
        "benchmarks/speed.md",
        "runs/another-cpu.md",
        "runs/another-cpu-tuned.md",
        "runs/equal_cost.md",
    }
    for page in PAGES:
        assert filled(page.read_text()) == page.read_text(), f"{page.name}: run `make readme`"


def test_the_picture_is_of_the_tables_arms_and_their_differences():
    """Another machine's last bits may move a line by less than can be seen."""
    figure = front_picture(settings_module.load(scale="cpu"))
    text = (ROOT / "runs/equal_cost.md").read_text().splitlines()[3:]  # without the baseline's row
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text]
    left, right = figure.axes
    labels = [label.get_text() for label in left.get_yticklabels() if label.get_fontweight() != "bold"]
    assert labels == [arm for arm, *_ in table] and "D³S" in labels
    for ax, place in ((left, 3), (right, 5)):  # the table's columns
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


def test_every_method_in_git_has_its_place_among_the_equations():
    text = (ROOT / "docs/methods.md").read_text()
    for package in ("plans", "rewards", "filters", "advantages", "samplers", "objectives"):
        for path in in_git(package):
            assert f"(../src/repro/methods/{package}/{path.name})" in text, path.name


def in_git(package: str) -> list[Path]:
    """The methods of a package that are in git: one's own needs no page before it is shared."""
    command = ["git", "ls-files", f"src/repro/methods/{package}/[a-z]*.py"]
    return [ROOT / line for line in subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.split()]


def test_the_tree_names_packages_that_exist():
    tree = (ROOT / "docs/architecture.md").read_text().split("## The tree")[1]
    packages = re.search(r"^src/repro/\n(.*?)^configs/", tree, re.DOTALL | re.MULTILINE)[1]
    here = {path.name for path in (ROOT / "src/repro").rglob("*")}
    named = re.findall(r"\b([a-z_]+)(?:/|\.py)", packages)
    assert len(named) > 30
    for name in named:
        assert name in here or f"{name}.py" in here, name


def test_the_headline_agrees_with_the_committed_tables():
    """ZVF alone is significantly higher, for 1.4 times GRPO's tokens; GRPO by token mean ends highest."""
    rows = [
        [cell.strip() for cell in line.split("|")] for line in (ROOT / "tables/accuracy.md").read_text().splitlines()
    ]
    rows = [row for row in rows[2:] if len(row) > 3]
    assert len(rows) == 70 and [row[2] for row in rows if row[-2].startswith("higher")] == ["ZVF"]
    assert max(rows, key=lambda row: float(row[3].split()[0]))[2] == "GRPO, token mean"
    evaluations = pd.read_parquet(ROOT / "tables/evaluations.parquet")
    last = evaluations.sort_values("step").groupby(["arm", "seed"])["trained_tokens"].last().groupby("arm").mean()
    assert round(last["zvf"] / last["grpo"], 1) == 1.4
    assert set(evaluations.loc[evaluations["arm"] == "zvf", "seed"]) == {0, 1, 2, 3, 4}


def test_citations_agree():
    """CITATION.bib and README name the papers of CITATION.cff; the version is pyproject's."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    bibliography = re.sub(r"[{}]", "", (ROOT / "CITATION.bib").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert citation["version"] == version and f"Version {version}" in bibliography
    assert citation["title"] in bibliography
    for paper in citation["references"]:
        [[number]] = [re.findall(r"[\d.]+", entry["value"]) for entry in paper["identifiers"]]
        authors = " and ".join(f"{author['family-names']}, {author['given-names']}" for author in paper["authors"])
        assert number in bibliography and f"arxiv.org/abs/{number}" in README
        assert paper["title"] in bibliography and authors in bibliography


def test_the_example_sampler_is_the_one_that_the_pipeline_trains():
    from test_pipeline import SAMPLER

    assert SAMPLER.strip() in README


def test_the_example_works_as_a_file_with_its_entry():
    file = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[1]
    entry = yaml.safe_load(re.search(r"```yaml\n(.*?)```", README, re.DOTALL)[1])["shortest"]
    names: dict = {}
    exec(file, names)
    [[(name, parameters)]] = [call.items() for call in entry["samplers"]]
    sampler = arms.bind("shortest", "samplers", names[name], parameters)
    assert sampler.keywords == {"share": 0.5}
    arms.check(settings_module.load(scale="smoke").with_arms({"shortest": {**entry, "samplers": [sampler]}}))


@pytest.mark.slow
def test_the_example_cell_trains():
    """As printed, at scale `smoke` in place of `tutorial`."""
    cell = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    assert 'scale="tutorial"' in cell
    names: dict = {}
    lines = cell.replace('scale="tutorial"', 'scale="smoke"').strip().splitlines()
    exec("\n".join([*lines[:-1], "shown = " + lines[-1]]), names)
    assert list(names["shown"].columns) == ["grpo", "shortest"] and names["shown"].notna().all(axis=None)
    steps = names["tables"]["steps"].query("arm == 'shortest' and not skipped")
    assert (steps["selected_rollouts"] == 16).all() and len(steps)
