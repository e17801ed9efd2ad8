"""Reports in a browser: tables sort and filter, figures answer, and nothing overflows, complains or asks for more."""

import base64
import re

import nbformat
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from repro.plots import style
from repro.plots.interactive import estimates, lines
from repro.plots.narrow import stacked
from repro.plots.style import FIGURE, new_figure
from repro.plots.words import says
from repro.report.figures import library_name
from repro.report.html import render

HOSTILE = "</script><img src=x onerror=alert(1)> & $x$"
ARMS = ["GRPO", "ZVF", "PODS", HOSTILE]
CURVES = pd.DataFrame(
    [
        {"arm": arm, "step": step, "mean": 0.25 + 0.125 * place * step, "low": 0.1, "high": 0.9, "measure": measure}
        for measure in ("kl", "entropy")
        for place, arm in enumerate(ARMS)
        for step in range(5)
    ]
)
ENDS = pd.DataFrame({"arm": ARMS[1:], "group": ["Filters", "Subsets", "Filters"], "panel": "d"})
ENDS = ENDS.assign(value=[0.1, -0.4, 0.05], value_low=[0.0, -0.5, -0.1], value_high=[0.2, -0.3, 0.2])
COSTS = ["≥ 1.04", "0.72 [0.60, 0.85]", "–", "1,204", "0.90", "-0.5", "1.5e-3", "2", "3", "4"]


def curves():
    """Two panels side by side, with the drawing of their rows."""
    figure, axes = new_figure(3.0, 1, 2)
    for ax, (measure, part) in zip(axes[0], CURVES.groupby("measure", sort=False), strict=True):
        ax.plot(part["step"], part["mean"])
        ax.set_title(measure)
    figure.suptitle("What happens on the way?")
    choices = {"measure": {"kl": "KL", "entropy": "entropy"}}
    says(figure, "KL rises")
    options = {"low": "low", "high": "high", "base": "GRPO", "shown": ["GRPO", "ZVF"]}
    return lines(figure, CURVES, x="step", y="mean", by="arm", choices=choices, labels=("step", "nats"), **options)


def ends():
    figure, axes = new_figure(3.0)
    axes[0, 0].plot(ENDS["value"], range(3), "o")
    choices = {"panel": {"d": "difference"}}
    return estimates(figure, ENDS, by="arm", value="value", limits=(-0.2, 0.3), choices=choices, group="group")


def ratios():
    """Three panels, one shown at a time: two of positive values on a logarithmic axis, one on a linear axis."""
    values = {"0.5": (0.5, 0.125, 4.0), "1.5": (1.5, 0.125, 4.0), "d": (-0.5, -1.0, 1.0)}
    rows = [(arm, panel, *ends) for panel, ends in values.items() for arm in ARMS[1:]]
    table = pd.DataFrame(rows, columns=["arm", "panel", "value", "value_low", "value_high"])
    choices, reference = {"0.5": "tokens", "1.5": "FLOPs", "d": "d"}, {"0.5": 1.0, "1.5": 1.0, "d": 0.0}
    options = {"choices": {"panel": choices}, "reference": reference, "log": ["0.5", "1.5"]}
    return estimates(new_figure(3.0)[0], table, by="arm", value="value", **options)


def shown(figure):
    svg, words = style._shown_as_svg(figure)
    data = {"image/svg+xml": svg, **(style._shown_in_reports(figure) or {})}
    return new_output("display_data", data=data, metadata={"image/svg+xml": words})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a report of two tables and two figures, of which the first has a picture for phones."""
    folder = tmp_path_factory.mktemp("reports")
    names = [f"arm {n}" for n in range(len(COSTS))]
    index = pd.MultiIndex.from_arrays([["A"] * 4 + ["B"] * 6, names], names=["group", "arm"])
    table = pd.DataFrame({"cost": COSTS, "significant": ["no"] * 9 + ["yes"]}, index)
    notebook = new_notebook(
        cells=[
            new_markdown_cell("# Title\n\nText."),
            new_code_cell("table", outputs=[new_output("display_data", data={"text/html": table.to_html()})]),
            new_code_cell("curves()", outputs=[shown(curves())]),
            new_code_cell('table.drop(columns="temperature").set_index("name").round(3).rename(columns={})'),
            new_code_cell("ends()", outputs=[shown(ends())]),
            new_code_cell("ratios()", outputs=[shown(ratios())]),
        ]
    )
    nbformat.write(notebook, folder / "n.ipynb")
    render(folder / "n.ipynb", folder / "r.html", "Title", {}, links={"arm 3": "arm-3.html"})
    return folder


@pytest.fixture
def opened(folder, browser):
    """Opens the report at a width; at the end, nothing but the page and the library was asked for, and no complaint."""
    events, pages = [], []

    def open_page(width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 844}, **options)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("dialog", lambda dialog: (events.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: events.append(request.url))
        page.on("console", lambda message: events.append(message.text))
        page.on("pageerror", lambda error: events.append(str(error)))
        page.goto((folder / "r.html").as_uri())
        pages.append(page)
        return page

    yield open_page
    allowed = {(folder / name).as_uri() for name in ("r.html", library_name())}
    assert [event for event in events if not event.startswith("data:") and event not in allowed] == []
    for page in pages:
        page.context.close()


def column(page, number):
    """The texts of a column's cells that are shown."""
    visible = "[...document.querySelectorAll('tbody tr')].filter(row => !row.hidden)"
    return page.evaluate(f"{visible}.map(row => row.cells[row.cells.length - {3 - number}].textContent.trim())")


def drawn(page, number):
    """The figure, once its drawing has taken the picture's place."""
    figure = page.locator(f"#figure-{number}")
    figure.scroll_into_view_if_needed()
    figure.locator("svg").first.wait_for()
    page.wait_for_selector(f"#figure-{number}.answers")
    return figure


def test_a_table_sorts_by_numbers_with_the_unknown_last_and_back_again(opened):
    page = opened()
    head = page.locator("th", has_text="cost")
    falling = ["1,204", "4", "3", "2", "≥ 1.04", "0.90", "0.72 [0.60, 0.85]", "1.5e-3", "-0.5", "–"]
    head.locator("button").click()
    assert column(page, 1) == falling and head.get_attribute("aria-sort") == "descending"
    cells = page.evaluate("[...document.querySelectorAll('tbody tr')].map(row => row.cells[0].textContent)")
    assert cells[:2] == ["A", "B"] and len(cells) == 10  # each row says its group itself, since they part
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert column(page, 1) == [*falling[-2::-1], "–"] and head.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Enter")
    assert column(page, 1) == COSTS and head.get_attribute("aria-sort") is None


def test_a_table_filters_by_words_in_any_order_and_says_how_many_are_left(opened):
    page = opened()
    page.get_by_label("Filter rows").fill("yes ARM")
    assert column(page, 1) == ["4"] and page.locator(".sieve output").inner_text() == "1 of 10"
    page.locator("th", has_text="significant").locator("button").click()
    page.get_by_label("Filter rows").fill("")
    assert (
        column(page, 1) == COSTS
        and page.locator("th", has_text="significant").get_attribute("aria-sort") == "ascending"
    )
    assert page.locator("a", has_text="arm 3").get_attribute("href") == "arm-3.html"


def test_a_point_says_its_numbers_and_the_reader_chooses_lines_and_measure(opened):
    page = opened()
    figure = drawn(page, 1)
    points = figure.locator(".mark-symbol path")
    assert figure.locator(".role-axis-title").all_text_contents() == ["step", "nats"]
    assert points.count() == 2 * 5 and not figure.locator("picture").is_visible()
    points.nth(3).hover(force=True)
    said = page.locator("#vg-tooltip-element.visible")
    said.wait_for()
    assert re.split(r"\s+", said.inner_text().strip()) == [
        "arm",
        "GRPO",
        "step",
        "3",
        "nats",
        "0.25",
        *["interval", "0.1", "to", "0.9"],
    ]
    figure.locator("select[name=measure]").select_option("entropy")
    figure.locator(".lines select").select_option(HOSTILE)
    figure.get_by_role("button", name="ZVF").click()
    page.wait_for_function("document.querySelectorAll('#figure-1 .mark-symbol path').length == 10")
    assert [chip.inner_text() for chip in figure.locator(".chips button").all()] == ["GRPO", HOSTILE]
    assert figure.locator(".lines option").all_inner_texts() == ["add …", "ZVF", "PODS"]


def test_rows_can_be_left_out_by_group_and_ordered_by_value(opened):
    page = opened()
    figure = drawn(page, 2)
    labels = figure.locator(".role-axis-label text")
    names = [text for text in labels.all_text_contents() if text in ARMS]
    lines = labels.locator("tspan").all_text_contents()
    assert names == ["ZVF", "PODS"] and " ".join(line for line in lines if line not in ARMS) == HOSTILE
    figure.locator("select[name=order]").select_option("value")
    page.wait_for_timeout(300)
    assert [text for text in labels.all_text_contents() if text in ARMS][-1] == "PODS"
    figure.locator("select[name=group]").select_option("Subsets")
    page.wait_for_function("document.querySelectorAll('#figure-2 .mark-symbol path').length == 1")
    other = drawn(page, 3)
    place = other.locator(".mark-symbol path").first
    before = place.bounding_box()["x"]
    other.locator("select[name=panel]").select_option("1.5")
    page.wait_for_timeout(300)
    assert place.bounding_box()["x"] > before + 100  # a log axis: 1.5 is three times 0.5
    labels = other.locator(".role-axis-label text")
    assert {"0.125", "0.25", "0.5", "1", "2", "4"} <= set(labels.all_text_contents())
    assert other.locator(".role-axis-title").all_text_contents() == ["FLOPs"]  # what is chosen
    other.locator("select[name=panel]").select_option("d")
    page.wait_for_timeout(300)
    assert {"-1", "-0.5", "0", "0.5", "1"} <= {text.replace("−", "-") for text in labels.all_text_contents()}  # linear


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_overflows_and_a_phone_has_panels_below_each_other(opened, width):
    page = opened(width)
    for number in (1, 2, 3):
        drawn(page, number)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    svg = page.evaluate("[...document.querySelectorAll('.plot svg')].map(s => s.getBoundingClientRect().right)")
    assert len(svg) == 3 and max(svg) <= width
    plain = opened(width, java_script_enabled=False)
    picture = plain.locator("figure img").first
    box = picture.bounding_box()
    assert (box["height"] > box["width"]) == (width == 390) and plain.locator("button, .drawing").count() == 0


def test_code_waits_for_the_switch(opened):
    page = opened()
    folds = page.locator("details.code")
    assert folds.count() > 0 and not folds.first.is_visible()
    page.locator("#figure-1 figcaption a").click()
    assert page.get_by_text("curves()").last.is_visible() and not folds.first.is_visible()
    page.get_by_label("code, parameters and checks").check()
    assert all(fold.is_visible() for fold in folds.all())


def test_print_and_a_page_without_the_library_show_the_picture(opened, folder, browser, tmp_path):
    page = opened()
    figure = drawn(page, 1)
    page.emulate_media(media="print")
    assert figure.locator("picture").is_visible() and not figure.locator(".drawing").is_visible()
    assert not page.locator(".sieve").is_visible()
    boxes = "[...document.querySelectorAll('.table')].map(box => getComputedStyle(box).overflowX)"
    assert set(page.evaluate(boxes)) == {"visible"}  # a box that scrolls is cut on paper
    (tmp_path / "r.html").write_bytes((folder / "r.html").read_bytes())
    alone = browser.new_page()
    alone.goto((tmp_path / "r.html").as_uri())
    alone.locator("#figure-1").scroll_into_view_if_needed()
    alone.wait_for_timeout(500)
    assert alone.locator("#figure-1 picture").is_visible() and alone.locator(".drawing").count() == 0
    alone.close()


def test_what_a_figure_brings_beside_its_picture():
    output = shown(curves())
    more = output.data[FIGURE]
    assert base64.b64decode(more["narrow"]).startswith(b"\x89PNG") and FIGURE in output.data
    assert output.metadata["image/svg+xml"]["alt"].startswith("KL rises – What happens on the way? – kl; entropy")
    columns = more["interactive"]["columns"]
    assert columns["line"]["words"] == ARMS and columns["y"][:5] == [0.25] * 5 and columns["x"][:3] == [0.0, 1.0, 2.0]
    assert shown(ends()).data[FIGURE].keys() == {"interactive"}  # one panel is narrow already
    cut = ends().interactive["columns"]
    assert cut["at"] == [0.1, -0.2, 0.05] and cut["low"] == [0.0, -0.2, -0.1] and cut["value"][1] == -0.4


def test_a_figure_with_lambdas_stands_on_a_phone_too():
    """As ticks and second axes have them."""
    figure, axes = new_figure(3.0, 1, 2)
    axes[0, 0].xaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    axes[0, 1].secondary_xaxis("top", functions=(lambda x: 2 * x, lambda x: x / 2))
    column = stacked(figure)
    assert column.get_figheight() == 6.0 and [ax.get_subplotspec().rowspan.start for ax in column.axes] == [0, 1]
    assert column.axes[0].xaxis.get_major_formatter()(5.0, 0) == "5 %" and figure.get_figheight() == 3.0


def test_on_a_phone_names_of_rows_leave_room_for_few_ticks_and_titles_in_lines():
    figure, axes = new_figure(3.0, 1, 2, sharey=True)
    for ax in axes[0]:
        ax.plot([-0.055, 0.03], [0, 1])
        ax.set_yticks([0, 1], ["GRPO, token mean", "PODS"])
        ax.set_title("generation 27% of GRPO's bill", loc="left", fontsize=11)
    figure.supxlabel("held-out accuracy at temperature 1, less GRPO's with the same settings")
    for ax in (column := stacked(figure)).axes:
        assert len(ax.get_xticks()) <= 5 and ax.get_title("left") == "generation 27% of\nGRPO's bill"
    assert max(map(len, column.get_supxlabel().split("\n"))) <= 34 and "\n" not in figure.get_supxlabel()
