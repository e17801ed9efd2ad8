"""Reports: one offline file, formulas included, under the limit, with provenance; and the index that lists them."""

import base64
import re
from itertools import pairwise

import nbformat
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from repro import settings as settings_module
from repro.paths import ROOT
from repro.pipeline.__main__ import main
from repro.pipeline.pages import arm_links, in_order, listed, neighbours
from repro.plots.style import METADATA, arm_styles, save, use_style
from repro.report.html import LIMIT, render
from repro.report.index import Entry, write_index
from repro.report.markdown import first_sentence, lead_and_rest
from repro.report.mathml import to_mathml

PROVENANCE = {
    "command": "dvc repro report@grpo",
    "commit": "0123456789ab",
    "dirty": True,
    "date": "2026-01-02 03:04 UTC",
    "seconds": 93.4,
    "seeds": [0, 1, 2],
    "data": "sha256:aabbccddeeff",
    "hardware": {"cpu": "Some CPU", "cores": 2},
    "python": "3.11.7",
    "packages": {"torch": "2.13.0", "numpy": "2.3.5"},
    "settings": {"arm": "grpo", "train": {"steps": 60, "clip": [0.2, 0.28]}, "a": 1, "b": 2, "c": 3, "d": "<&>"},
}
TEXT = r"""# The notebook's own heading

GRPO weighs $|A_i|/\sqrt{c_i}$, e.g. as in eq. 8. A second sentence.

$$\hat g = \sum_{i=1}^{N} w_i g_i$$
"""


@pytest.fixture(scope="module")
def svg(tmp_path_factory):
    """The bytes of one small figure."""
    from matplotlib.figure import Figure

    use_style()
    figure = Figure()
    figure.subplots().plot([0, 1], [0, 1], label="grpo", **arm_styles(["grpo"])["grpo"])
    folder = tmp_path_factory.mktemp("figures")
    first = [p.read_bytes() for p in save(figure, folder / "one")]
    assert first == [p.read_bytes() for p in save(figure, folder / "two.svg")]  # the same figure, the same bytes
    assert sorted(p.name for p in folder.iterdir()) == ["one.png", "one.svg", "two.png", "two.svg"]
    assert b"<dc:date>" not in first[0] and first[1].startswith(b"\x89PNG") and METADATA["Date"] is None
    return first[0].decode()


def write_notebook(path, *cells):
    nbformat.write(new_notebook(cells=list(cells)), path)
    return path


def code(source, *outputs, tags=()):
    return new_code_cell(source, outputs=list(outputs), metadata={"tags": list(tags)} if tags else {})


def shown(data):
    return new_output("display_data", data=data)


@pytest.fixture(scope="module")
def report(tmp_path_factory, svg):
    """The path of a report with one output of every kind."""
    folder = tmp_path_factory.mktemp("reports")
    index = pd.Index(["grpo", "cost-aware"], name="arm")
    table = pd.DataFrame({"accuracy": [0.71, 0.8], "range": ["[0.6, 0.8]", "[0.7, 0.9]"], "why": ["x", "1"]}, index)
    notebook = write_notebook(
        folder / "grpo.ipynb",
        new_markdown_cell(TEXT),
        code("arm = 'grpo'", tags=["injected-parameters"]),
        code("print(1 < 2)", new_output("stream", name="stdout", text="10%\r100%\nTrue & <b>done</b>\n")),
        code("table", shown({"text/html": table.to_html(), "text/plain": "plain form"})),
        code("figure", shown({"image/svg+xml": svg, "text/plain": "<Figure>"})),
        code("js", shown({"text/html": '<script src="https://cdn.example/x.js"></script><b>kept</b>'})),
        code("secret = 1", tags=["hide"]),
        code(
            "1/0", new_output("error", ename="ZeroDivisionError", evalue="division", traceback=["\x1b[31mline\x1b[0m"])
        ),
        new_markdown_cell(
            "See <u>the</u> [paper](https://example.org/paper).\n\n| n | k |\n|---|:--|\n| 1,204 | 3.1e-4 |"
        ),
    )
    render(notebook, folder / "grpo.html", "Arm: <grpo>", PROVENANCE, group="arms")
    before = (folder / "grpo.html").read_bytes()
    render(notebook, folder / "grpo.html", "Arm: <grpo>", PROVENANCE, group="arms")
    assert before == (folder / "grpo.html").read_bytes()  # the same inputs, the same bytes
    return folder / "grpo.html"


@pytest.fixture(scope="module")
def soup(report):
    return BeautifulSoup(report.read_text(), "html.parser")


def check_offline(text):
    """No element, style or script fetches anything; links to follow and XML namespaces may."""
    for element in BeautifulSoup(text, "html.parser").find_all(True):
        assert element.name not in ("link", "iframe") and (element.name != "script" or element.parent.name == "head")
        for name in ("src", "srcset", "data", "href", "xlink:href"):
            value = element.get(name, "")
            assert element.name == "a" or value.startswith("data:") or not value
    assert "@import" not in text and not re.search(r"url\((?!data:)", text)


def test_report_is_one_offline_file(report):
    text = report.read_text()
    assert 1_000 < len(text.encode()) < LIMIT == 1_000_000
    check_offline(text)
    assert len(BeautifulSoup(text, "html.parser").find_all(True)) > 100
    assert [p.name for p in sorted(report.parent.iterdir())] == ["grpo.html", "grpo.ipynb"]


def test_formulas_are_mathml(soup):
    inline, block = soup.find_all("math")
    assert (inline["display"], inline["alttext"]) == ("inline", r"|A_i|/\sqrt{c_i}")
    assert inline.msqrt.get_text() == "ci" and inline.msub.get_text() == "Ai"
    assert block["display"] == "block" and block.mover.get_text() == "g^"
    assert [c.get_text() for c in block.munderover.find_all(True, recursive=False)] == ["∑", "i=1", "N"]
    assert "$" not in soup.main.get_text() and "font/woff2" in str(soup.head)


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        (r"a \sim b \pm c", "a∼b±c"),
        (r"\operatorname*{arg\,min}_x f", "arg\u2009minxf"),
        (r"\arg\max_x f", "arg\u2009maxxf"),
        (r"\boldsymbol{\theta}\,\mathbf{1}[x<y]", "𝜽𝟏[x<y]"),
        (r"\begin{aligned} a &= b \\ c &= d \end{aligned}", "a=bc=d"),
        (r"x := \mathbb{E}_{q}[r] \tag{8}", "x≔𝔼q[r](8)"),
    ],
)
def test_what_latex2mathml_leaves_out(tex, text):
    assert BeautifulSoup(to_mathml(tex), "html.parser").get_text() == text


def test_every_kind_of_cell(soup):
    main = soup.main
    assert soup.h1.get_text() == "Arm: <grpo>" and len(soup.find_all("h1")) == 1
    folded = ["print(1 < 2)", "table", "figure", "js", "1/0"]
    assert [s.get_text() for s in main.find_all("summary")] == ["parameters as run", *(f"code {c}" for c in folded)]
    assert not any(d.has_attr("open") for d in soup.find_all("details"))
    assert main.find("pre", class_="stream").get_text() == "100%\nTrue & <b>done</b>"
    assert main.find("b").get_text() == "kept" and main.find("u").get_text() == "the"
    for absent in ("secret", "plain form", "<Figure>", "notebook's own heading"):
        assert absent not in main.get_text()
    image = main.img
    assert image["alt"] == "Figure 1: Arm: <grpo>"
    assert base64.b64decode(image["src"].partition(",")[2]).endswith(b"</svg>\n")
    assert main.find(class_="error").strong.get_text() == "ZeroDivisionError: division"
    assert main.find(class_="ansi-red-fg").get_text() == "line"


def test_tables_scroll_and_align(soup):
    frame, markdown = soup.main.find_all("table")
    assert [t.parent["class"] for t in (frame, markdown)] == [["table"], ["table"]]
    assert [c.get_text() for c in frame.thead.find_all("th")] == ["arm", "accuracy", "range", "why"]  # one head row
    assert [c.get_text() for c in frame.find_all(class_="number")] == [
        *("accuracy", "range"), *("0.71", "[0.6, 0.8]"), *("0.80", "[0.7, 0.9]")
    ]  # fmt: skip
    assert [c.get_text() for c in markdown.find_all(class_="number")] == ["n", "k", "1,204", "3.1e-4"]


def test_python_words_and_the_names_of_three_heads_are_as_in_print(tmp_path):
    """Missing, true and false; words among missing numbers are words; an index has its name beside theirs."""
    columns = pd.MultiIndex.from_product([["at one rate"], ["accuracy", "open", "count"]], names=["rate", "what"])
    frame = pd.DataFrame(
        [[0.5, True, None], [float("nan"), False, "as computed"]], pd.Index(["a", "b"], name="arm"), columns
    )
    render(
        write_notebook(tmp_path / "n.ipynb", code("table", shown({"text/html": frame.to_html()}))),
        tmp_path / "t.html", "Title", {},
    )  # fmt: skip
    table = BeautifulSoup((tmp_path / "t.html").read_text(), "html.parser").main.table
    heads = [[cell.get_text() for cell in row.find_all("th")] for row in table.thead.find_all("tr")]
    assert heads == [["rate", "at one rate"], ["arm", "accuracy", "open", "count"]]
    cells = [(cell.get_text(), "number" in cell.get("class", [])) for cell in table.find_all("td")]
    assert cells == [("0.5", True), ("yes", False), ("–", False), ("–", True), ("no", False), ("as computed", False)]


def test_only_columns_that_name_arms_link_to_their_pages(tmp_path):
    """The group sGPO has an arm of its name, and so may a mix; cells that span rows do not shift the columns."""
    names = [("sGPO", "sGPO"), ("sGPO", "sGPO, drift"), ("ZVF", "ZVF")]
    grouped = pd.DataFrame({"against": ["ZVF", "–", "sGPO"], "mix": "ZVF"}, pd.MultiIndex.from_tuples(names))
    grouped.index.names = ["group", "arm"]
    levels = pd.DataFrame({("a", "x"): [1], ("a", "y"): ["ZVF"]}, pd.Index(["ZVF"], name="arm"))
    cells = [code(f"table_{n}", shown({"text/html": table.to_html()})) for n, table in enumerate((grouped, levels))]
    links = {"sGPO": "arm-sgpo.html", "ZVF": "arm-zvf.html"}
    render(write_notebook(tmp_path / "n.ipynb", *cells), tmp_path / "t.html", "Title", {}, links=links)
    first, second = BeautifulSoup((tmp_path / "t.html").read_text(), "html.parser").main.find_all("table")
    rows = [[(cell.get_text(), cell.a is not None) for cell in row.find_all(["th", "td"])] for row in first("tr")[1:]]
    assert rows == [
        [("sGPO", False), ("sGPO", True), ("ZVF", True), ("ZVF", False)],
        [("sGPO, drift", False), ("–", False), ("ZVF", False)],
        [("ZVF", False), ("ZVF", True), ("sGPO", True), ("ZVF", False)],
    ]
    assert [(link.get_text(), link.parent.name) for link in second.find_all("a")] == [("ZVF", "th")]


def test_tables_and_figures_say_what_they_are_and_which_cell_drew_them(tmp_path):
    table = pd.DataFrame({("a", "x"): [1], ("a", "y"): [2]}, pd.Index(["grpo"], name="arm"))
    figure = new_output("display_data", data={"image/png": "AAAA"}, metadata={"image/png": {"alt": "Loss – y: x"}})
    styled = table.style.set_caption("Set by the notebook").to_html()
    notebook = write_notebook(
        tmp_path / "n.ipynb",
        code("table", shown({"text/html": table.to_html()})),
        new_markdown_cell("## Costs at $p=1$"),
        code("table", shown({"text/html": table.to_html()}), shown({"text/html": styled})),
        code("figure", figure, shown({"image/png": "AAAA"})),
        new_markdown_cell("## Ends\n\n[code](../../pyproject.toml)\n\n## Ends"),
    )
    near = {"previous": ("policy.html", "Base <policy>"), "next": ("arm-a.html", "A")}
    render(notebook, tmp_path / "a.html", "Title", PROVENANCE, neighbours=near)
    main = BeautifulSoup((tmp_path / "a.html").read_text(), "html.parser")
    captions = [caption.get_text() for caption in main.find_all("caption")]
    assert captions == ["Table 1", "Table 2: Costs at p=1", "Table 3: Set by the notebook"]
    assert [box["aria-label"] for box in main.find_all(class_="table")] == captions
    assert [image["alt"] for image in main.find_all("img")] == ["Loss – y: x", "Figure 2: Costs at p=1"]
    assert [h["scope"] for h in main.table.find_all("th") if h.get_text()] == ["colgroup", "col", "col", "col", "row"]
    assert {link["href"] for link in main.select("figcaption a")} == {f"#{main.select('.code > div')[-1]['id']}"}
    assert (tmp_path / main.find("a", string="code")["href"]).resolve() == ROOT / "pyproject.toml"
    turns = main.find(class_="turn").find_all("a")
    assert [(a["href"], a["class"]) for a in turns] == [("policy.html", ["previous"]), ("arm-a.html", ["next"])]
    assert turns[0].get_text().split() == ["previous", "Base", "<policy>"]


def test_the_answer_comes_first_and_tagged_sections_have_pages_of_their_own(tmp_path):
    def section(heading, *tags):
        return new_markdown_cell(f"## {heading}\n\nOn {heading}.", metadata={"tags": list(tags)})

    figure = shown({"image/png": "AAAA"})
    notebook = write_notebook(
        tmp_path / "n.ipynb",
        new_markdown_cell("# Title\n\nWhy."),
        section("Ends"),
        code("best = 1\nMarkdown(\n    best\n)", shown({"text/markdown": "It ends at 0.71. More."}), tags=["summary"]),
        section("Costs", "page:cost"),
        code("cost", shown({"text/plain": "cost"})),
        section("Claims", "page:claims"),
        section("Ratios", "page:cost"),
        code("figure", figure, tags=["answer"]),
        section("Last"),
        new_markdown_cell("## Emptied"),
        code("more", shown({"text/markdown": "More."}), tags=["answer"]),
        code("write()"),
        new_markdown_cell("## Kept"),
        code("more", shown({"text/markdown": "More."}), tags=["answer"]),
        code("rest", shown({"text/plain": "rest"})),
    )
    made = render(notebook, tmp_path / "r.html", "Title", {}, group="results")
    assert [path.name for path in made] == ["r.html", "r-cost.html", "r-claims.html"]
    first, cost, claims = (BeautifulSoup(path.read_text(), "html.parser") for path in made)
    answer = first.main.find("section")
    assert answer["class"] == ["answer"] and answer.get_text(" ", strip=True).startswith("It ends at 0.71.")
    assert answer.summary.get_text() == "code Markdown(…)"  # what made it, below it
    assert [h.get_text().removesuffix("#") for h in first.main.find_all("h2")] == [
        "More of this report",
        "How it was measured",
        "The question and the runs",
        "Ends",
        "Last",
        "Kept",  # and none below which nothing is left
    ]
    assert [a["href"] for a in first.find(class_="parts").find_all("a")] == ["r-cost.html", "r-claims.html"]
    assert cost.h1.get_text() == "Costs" and cost.main.find("h2", id="Ratios") and "On Ratios." in cost.main.get_text()
    assert [a["href"] for a in claims.header.find_all("a")] == ["index.html", "r.html"]
    (tmp_path / "removed.html").symlink_to(tmp_path / "nowhere")  # as DVC removes one for a stage beside this one
    path = write_index(tmp_path)
    [item] = BeautifulSoup(path.read_text(), "html.parser").find_all("li")
    assert [a["href"] for a in item.find_all("a")] == ["r.html", "r-cost.html", "r-claims.html"]
    assert item.p.get_text() == "It ends at 0.71."
    wrong = write_notebook(tmp_path / "w.ipynb", new_markdown_cell("Text.", metadata={"tags": ["page:cost"]}))
    with pytest.raises(ValueError, match=r"w\.ipynb: a cell is tagged 'page:cost' but opens no section"):
        render(wrong, tmp_path / "w.html", "Title", {})


def test_reports_follow_each_other_as_in_params_yaml():
    settings = settings_module.load()
    by_file = {entry.file: entry for entry in listed(settings)}
    assert list(by_file)[:2] == ["results.html", "equal_cost.html"]
    assert by_file["arm-grpo.html"].command == "dvc repro report@grpo"
    arms = [stage for stage in in_order(settings) if stage.kind == "report"]
    assert [stage.item for stage in arms] == list(settings.arms)
    assert [by_file[s.report.name].section for s in arms] == [arm.group for arm in settings.arms.values()]
    for before, after in pairwise(in_order(settings)):
        assert neighbours(before, settings)["next"] == (after.report.name, after.title)
        assert neighbours(after, settings)["previous"] == (before.report.name, before.title)
    assert "previous" not in neighbours(in_order(settings)[0], settings)
    assert arm_links(settings)[settings.arms["grpo"].title] == "arm-grpo.html"


def test_footer_says_where_the_numbers_come_from(soup):
    said = dict(zip((d.get_text() for d in soup.footer.find_all("dt")), soup.footer.find_all("dd"), strict=True))
    assert list(said) == [
        *("commit", "command", "date", "seconds", "seeds", "data", "hardware", "python", "packages", "settings")
    ]
    assert "0123456789ab" in said["commit"].get_text() and "dirty" in said["commit"].get_text()
    assert said["seeds"].get_text() == "0, 1, 2" and said["seconds"].get_text() == "93.4"
    assert [li.get_text() for li in said["packages"].find_all("li")] == ["torch 2.13.0", "numpy 2.3.5"]
    assert said["data"].get_text() == "sha256:aabbccddeeff"
    assert "steps: 60" in said["settings"].details.pre.get_text() and "<&>" in said["settings"].get_text()


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        (
            code("big = 1", shown({"text/html": "x" * LIMIT})),
            "the page report.html would be 1.",
        ),
        (new_markdown_cell(r"$\foo$"), r"unknown command \foo"),
    ],
)
def test_what_is_refused_leaves_the_old_report_alone(tmp_path, cell, sentence):
    target = tmp_path / "report.html"
    target.write_text("old")
    with pytest.raises(ValueError, match=re.escape(sentence)) as raised:
        render(write_notebook(tmp_path / "n.ipynb", cell), target, "Title", {})
    assert str(raised.value).startswith("n.ipynb: ") and target.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["n.ipynb", "report.html"]


def test_index_lists_reports_by_group(report, tmp_path, capsys, monkeypatch):
    notebook = write_notebook(
        tmp_path / "n.ipynb",
        new_markdown_cell("What this notebook does."),
        code("s", shown({"text/markdown": "Ratio **0.71**. More."}), tags=["summary"]),
    )
    folder = tmp_path / "reports"
    made, where = {"date": "2026-01-01", "commit": "fff", "dirty": False}, {"bed": "slips", "price": "GRPO's bill"}
    render(notebook, folder / "results.html", "Results", made, group="results", where=where)
    (folder / "grpo.html").write_bytes(report.read_bytes())
    declared = [("grpo.html", "arms", "Objectives"), ("results.html", "results", ""), ("absent.html", "results", "")]
    path = write_index(folder, [Entry(*of, "Why?", "dvc repro absent") for of in declared])
    index = BeautifulSoup(path.read_text(), "html.parser")
    assert [title.get_text() for title in index.find_all(["h2", "h3"])] == [
        "Results across arms",
        "Arms",
        "Objectives",
    ]
    assert index.find(class_="unmade").get_text() == "Why? not made yet: dvc repro absent"
    path = write_index(folder)
    check_offline(path.read_text())
    items = BeautifulSoup(path.read_text(), "html.parser").find_all("li")
    assert [(i["data-group"], i.a["href"], i.a.get_text()) for i in items] == [
        ("results", "results.html", "Results"),
        ("arms", "grpo.html", "Arm: <grpo>"),
    ]
    assert [p.get_text() for p in items[0].find_all("p")] == ["Ratio 0.71.", "bed slips · price GRPO's bill"]
    assert items[1].math["alttext"] == r"|A_i|/\sqrt{c_i}" and items[1].p.get_text().endswith("as in eq. 8.")
    assert [item.small and item.small.get_text() for item in items] == ["fff", None]  # as the footer says of most
    assert "0123456789ab (dirty)" in BeautifulSoup(path.read_text(), "html.parser").footer.get_text()

    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    before = path.read_bytes()
    monkeypatch.setattr(write_index, "__defaults__", (folder, None))
    assert main(["index", "--open"]) == 0  # without a screen nothing is opened
    assert capsys.readouterr().out == f"{path.resolve()}\n"
    assert path.read_bytes() != before  # what params.yaml has no stage for is not listed
    monkeypatch.setattr(write_index, "__defaults__", (tmp_path / "none", None))
    assert main(["index"]) == 1 and "dvc repro" in capsys.readouterr().err


def test_first_sentence():
    assert first_sentence("# Title\n\nOne *thing*, i.e. $a. B$ here, cf. Fig. 2. Two.") == (
        "One thing, i.e. $a. B$ here, cf. Fig. 2."
    )
    assert first_sentence("Dr. GRPO ends. Two.") == "Dr. GRPO ends."
    assert first_sentence("## Only a heading") == ""
    assert lead_and_rest("**One. Two.** Three, cf. Fig. 2. Four.\n\n- five") == (
        "**One. Two.** Three, cf. Fig. 2.",
        "Four.\n\n- five",
    )


def test_an_answer_is_two_screens(tmp_path):
    """Two sentences, a figure, few columns; what is the same in every row is said once; what is wrong is not folded."""
    frame = pd.DataFrame({f"c{n}": range(14) for n in range(6)}, pd.Index([f"a{n}" for n in range(14)], name="arm"))
    frame = frame.assign(seed=3, note="")
    drawn = new_output("display_data", data={"image/png": "AAAA"})
    failed = new_output("error", ename="E", evalue="e", traceback=[])
    notebook = write_notebook(
        tmp_path / "n.ipynb",
        code("table", shown({"text/html": frame.to_html()}), tags=["answer"]),
        code("figure", drawn, tags=["answer"]),
        code("s", shown({"text/markdown": "One. Two. Three."}), tags=["summary"]),
        new_markdown_cell("## Kept shut\n\nText."),
        new_markdown_cell("## Wrong"),
        code("1/0", failed),
        new_markdown_cell("## Needed", metadata={"tags": ["open"]}),
    )
    render(notebook, tmp_path / "t.html", "Title", {}, where={"bed": "slips"})
    page = BeautifulSoup((tmp_path / "t.html").read_text(), "html.parser")
    answer = page.find(class_="answer")
    assert page.find(class_="where").get_text(" ", strip=True) == "bed slips"
    order = [element.name for element in answer.find_all(["p", "img", "table"])]
    assert order == ["p", "img", "table", "p"] and answer.p.get_text() == "One. Two."
    assert page.caption.get_text() == "Table 1 (in every row: seed 3)"
    assert [cell.get_text() for cell in page.select("thead th:not(.more)")] == ["arm", "c0", "c1", "c2", "c3"]
    assert answer.find(class_="switch").get_text(strip=True) == "all 14 rows and 7 columns"
    assert [part.has_attr("open") for part in page.find_all(class_="part")] == [False, True, True]
    assert page.find(id="how").find_parent(class_="how") and not page.header.find("input")


def test_arms_stay_apart_in_grey_and_when_one_is_added():
    arms = [f"arm {i}" for i in range(40)]
    styles = arm_styles(arms)
    assert len({(s["marker"], s["linestyle"]) for s in styles.values()}) == 40
    assert arm_styles(arms[:3]) == {a: styles[a] for a in arms[:3]}
    assert styles["arm 0"] == {"color": "#0173b2", "marker": "o", "linestyle": "-"}
