"""docs/paper: figures are taken from reports, and a sentence that the tables do not bear out stops the paper."""

import base64
import importlib.util
import shutil

import pytest
import typst

from repro.errors import Refused
from repro.paths import ROOT

PAPER = ROOT / "docs/paper"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><rect width="40" height="20"/></svg>'


@pytest.fixture
def make():
    spec = importlib.util.spec_from_file_location("paper", PAPER / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def root(tmp_path, make):
    """The committed tables, and a rectangle for every figure."""
    for folder in ("runs", "tables"):
        (tmp_path / folder).mkdir()
        for table in (ROOT / folder).glob("*.md"):
            shutil.copy(table, tmp_path / folder)
    shutil.copytree(PAPER, tmp_path / "docs/paper")
    (tmp_path / "build/paper").mkdir(parents=True)
    for name in make.FIGURES:
        (tmp_path / "build/paper" / name).write_bytes(SVG)
    return tmp_path


def written(root) -> list[bytes]:
    told = {"commit": "0123456789ab"}
    return typst.compile(root / "docs/paper/paper.typ", root=root, sys_inputs=told, format="png", ppi=20)


def test_it_is_written_from_the_tables_in_git(root):
    assert 6 <= len(written(root)) <= 14


def test_a_sentence_that_no_longer_holds_stops_it(root):
    table = root / "runs/prices.md"
    rows = [line.replace(" lower ", " higher") if "sGPO" in line else line for line in table.read_text().split("\n")]
    table.write_text("\n".join(rows))
    with pytest.raises(typst.TypstError, match=r"no longer holds: .*sGPO ends lower"):
        written(root)


def test_a_figure_is_the_one_of_that_title(make, tmp_path):
    data = base64.b64encode(SVG).decode()
    images = f'<img alt="a" src="data:,"><img alt="b – Why? – c" src="data:image/svg+xml;base64,{data}">'
    (tmp_path / "page.html").write_text(f"<body>{images}</body>")
    assert make.figure("page", "Why?", tmp_path) == SVG
    with pytest.raises(Refused, match=r"page.html has no figure with the title 'Who"):
        make.figure("page", "Who?", tmp_path)
