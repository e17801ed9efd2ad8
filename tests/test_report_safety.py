"""What a model, a data set or params.yaml says is shown as it is in a report, and nothing of it runs or loads."""

import re

import nbformat
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from hypothesis import example, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from repro.report.html import render
from repro.report.index import write_index
from repro.report.markdown import markdown_to_html
from repro.report.safe import TAGS, clean
from repro.stats.tables import as_html, markdown, verbatim, visible

LOUD = "window.alarms=(window.alarms||0)+1"  # and an alert, so that either would be noticed
RESPONSES = {
    "handler": f"<img src=x onerror='{LOUD};alert(1)'>",
    "svg": f"<svg onload='{LOUD};alert(1)'><script>{LOUD}</script></svg>",
    "script": f"<script>{LOUD};alert(1)</script>",
    "toggle": f"<details open ontoggle='{LOUD};alert(1)'>x</details>",
    "style": f"<style>@keyframes x{{}}*{{display:none}}</style><b style='animation:x 1s' onanimationend='{LOUD}'>",
    "frame": "<iframe src='http://elsewhere.example/frame'></iframe>",
    "picture": "![p](http://elsewhere.example/p.png) <img src='//elsewhere.example/q.png'>",
    "refresh": "<meta http-equiv=refresh content='0;url=http://elsewhere.example/'><base href='http://elsewhere.example/'>",
    "link": f"[a link](javascript:{LOUD}) <a href='JaVaScRiPt:{LOUD}'>x</a>",
    "formula link": rf"$\href{{javascript:{LOUD}}}{{x}}$",
    "comment": f"<!--><img src=x onerror='{LOUD}'>--> ]]> <![CDATA[",
    "torn table": "</td></tr></table></div></section></main><h1>mine</h1>",
    "bars": "a|b | c \\| d ||",
    "lines": "so x = 3\n\n  then y = 4\n|---|\nand z",
    "code": "```python\nif a | b:\n    print('**')\n```\n`x` and ~~y~~",
    "mathematics": r"$x_1^2$, \(y\), \[z\], $$\frac{a}{b}$$, \begin{align}u&=v\end{align}, $5 and $6",
    "unknown formula": r"$\foo$ and $\left( a$",
    "marks": "# not a heading\n- nor a list\n1. nor this\n> nor a quote\n***\n[r]: http://elsewhere.example/",
    "control": "\x00 \x1b[31mred\x1b[0m \u202egnol\u202c",
    "long": "word " * 300,
}
TITLE = f"Arm {RESPONSES['handler']} {RESPONSES['torn table']}"
TABLE = pd.DataFrame({"kind": list(RESPONSES), "response": list(RESPONSES.values()), "reward": range(len(RESPONSES))})


def squeezed(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """A folder with a report in which every response stands in every place where one could, and the index."""
    folder = tmp_path_factory.mktemp("reports")
    quoted = " ".join(verbatim(response) for response in RESPONSES.values())
    shown = [
        {"text/html": as_html(TABLE)},
        {"text/markdown": markdown(TABLE)},
        {"text/html": TABLE.to_html()},
        {"text/markdown": f"**{quoted}** ends at 0.5."},
        *({"text/markdown": f"{response} unescaped, by mistake"} for response in RESPONSES.values()),
        *({"text/latex": response} for response in RESPONSES.values()),
        *({"text/plain": response} for response in RESPONSES.values()),
    ]
    cells = [new_code_cell("shown", outputs=[new_output("display_data", data=data)]) for data in shown]
    streams = [new_output("stream", name=name, text="\n".join(RESPONSES.values())) for name in ("stdout", "stderr")]
    error = new_output("error", ename="E", evalue=RESPONSES["handler"], traceback=list(RESPONSES.values()))
    cells += [new_code_cell("printed", outputs=[*streams, error])]
    cells[3].metadata["tags"] = ["summary"]
    nbformat.write(new_notebook(cells=[new_markdown_cell("# Title"), *cells]), folder / "n.ipynb")
    said = {"about": RESPONSES["handler"], "all": list(RESPONSES.values())}
    render(folder / "n.ipynb", folder / "arm.html", TITLE, {"settings": said}, group=RESPONSES["script"])
    (folder / "n.ipynb").unlink()
    write_index(folder)
    return folder


@pytest.mark.parametrize("name", ["arm.html", "index.html"])
def test_nothing_in_a_page_could_run_or_load(reports, name):
    text = (reports / name).read_text()
    soup = BeautifulSoup(text, "html.parser")
    for element in soup.body.find_all(True):
        assert element.name in TAGS
        assert not any(attribute.startswith("on") or attribute == "style" for attribute in element.attrs)
        assert element.name == "img" or not element.has_attr("src")
        assert re.match(r"#|https?:|[\w.-]+\.html$", element.get("href", "#")), element
    policy = soup.find("meta", {"http-equiv": "Content-Security-Policy"})["content"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'" and "unsafe" not in policy and "http" not in policy
    assert text.index("Content-Security-Policy") < text.index("<style")


def test_a_table_of_responses_is_whole_and_each_is_as_it_was_written(reports):
    soup = BeautifulSoup((reports / "arm.html").read_text(), "html.parser")
    said, in_markdown, frame, *others = soup.find_all("table")
    assert not others, "a response has made a table of its own"
    for table in (said, in_markdown, frame):
        assert len(table.find_all("tr")) == 1 + len(RESPONSES)
        assert {len(row.find_all(["td", "th"])) for row in table.find_all("tr")} in ({3}, {4})
    for table in (said, in_markdown):
        for line in table.find_all("br"):
            line.replace_with("\n")
        shown = [row.find_all("td")[1].get_text() for row in table.tbody.find_all("tr")]
        for response, text in zip(RESPONSES.values(), shown, strict=True):
            assert squeezed(text) == squeezed(visible(response))
            assert table is in_markdown or text == visible(response)
    assert soup.header.h1.get_text() == soup.title.get_text() == TITLE


SIGNS = st.text(alphabet=list("\\`*_{}[]()<>#+-.!|$~&:;=\"'/ \n\tab1^x"), max_size=14)
PIECES = ["<b>", "$x$", r"\[", r"\begin{a}", r"\end{a}", "$$", "https://a", "&lt;", "![a](b)", "[a]: b", "```", "~~"]
PIECES += ["\n", "|", " ", "1. ", "- ", "\x00", "\u202e", "é", "a", "*", "_"]


@examples(max_examples=200, deadline=None)
@given(st.one_of(SIGNS, st.lists(st.sampled_from(PIECES), max_size=6).map("".join), st.text(max_size=8)))
@example(r"\\[x\\]")
def test_verbatim_text_reads_as_written_in_a_line_and_in_a_cell(text):
    def html(source):
        page = clean(markdown_to_html(source, authored=False)).replace("<br>", " ")
        return BeautifulSoup(page, "html.parser")

    expected = squeezed(visible(text))
    line = html(verbatim(text))
    assert squeezed(line.get_text()) == expected and {e.name for e in line.find_all(True)} <= {"p"}
    table = html(markdown(pd.DataFrame({"one": [1], f"head {text}": [text], "last": ["end"]})))
    assert [squeezed(cell.get_text()) for cell in table.find_all("td")] == ["1", expected, "end"]
    assert [squeezed(cell.get_text()) for cell in table.find_all("th")] == ["one", squeezed(f"head {expected}"), "last"]


def test_formulas_of_an_output_never_break_its_report_and_those_of_a_cell_must_be_right():
    assert "<code>$\\foo$</code>" in markdown_to_html(r"At $\foo$.", authored=False)
    assert "<math" in markdown_to_html(r"At $\lambda$.", authored=False)
    for tex in (r"$\foo$", r"$\href{https://a.example}{x}$", r"$\style{color:red}{x}$"):
        with pytest.raises(ValueError, match="formula"):
            markdown_to_html(tex)


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["arm.html", "index.html"])
def test_a_browser_sees_the_whole_table_and_no_alert_request_or_complaint(reports, browser, name, width):
    page = browser.new_page(viewport={"width": width, "height": 844})
    events = []
    page.set_default_timeout(20_000)
    page.route(re.compile("^https?:"), lambda route: route.abort())  # a request that is made is told of, and fails
    page.on("dialog", lambda dialog: (events.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: events.append(request.url))
    page.on("console", lambda message: events.append(message.text))
    page.on("pageerror", lambda error: events.append(str(error)))
    address = (reports / name).as_uri()
    page.goto(address)
    for link in page.query_selector_all("main a"):
        if not re.match(r"https?:|[\w.-]+\.html", link.get_attribute("href") or "#"):
            link.evaluate("a => a.click()")
    for fold in page.query_selector_all("details"):
        fold.evaluate("d => { d.open = true }")
    page.wait_for_timeout(300)
    loaded = [event for event in events if not event.startswith(("data:", address))]
    assert loaded == [] and page.evaluate("window.alarms") is None and page.url.startswith(address)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if name == "arm.html":
        said = page.evaluate(
            "[...document.querySelectorAll('table')[0].querySelectorAll('.said')].map(c => c.innerText)"
        )
        assert [squeezed(text) for text in said[1::2]] == [squeezed(visible(text)) for text in RESPONSES.values()]
        clipped = """[...document.querySelectorAll('table')].filter(table => {
            const box = table.parentElement, style = getComputedStyle(box)
            return table.offsetWidth > box.clientWidth && style.overflowX != 'auto'})"""
        assert page.evaluate(f"{clipped}.length") == 0
    page.close()
