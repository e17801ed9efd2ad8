"""What a page shows at first sight: the answer, with a figure and a table; how it was measured is folded below it."""

from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

BEGINNING = "The question and the runs"  # what stands above a notebook's first section
WRONG = ".error, .check.fails"  # does not wait for a click, nor does a section whose heading is tagged `open`


def drop_emptied(soup: "BeautifulSoup") -> None:
    """Take out headings below which nothing but folded code is left once the answer has gone to the top."""
    for heading in soup.main.select("section.text > :is(h2, h3):only-child"):
        siblings = heading.parent.find_next_siblings("section")
        below = list(takewhile(lambda section: not section.find(["h2", "h3"]), siblings))
        left = [section for section in below if "first" not in section["class"]]
        if len(left) < len(below) and not any(section.select(":scope > :not(details)") for section in left):
            heading.parent.decompose()


def answer_first(soup: "BeautifulSoup") -> None:
    """What the notebook marks as its answer goes to the top of the page, its first sentences above the figure and
    the others below the table, code and messages below what they made; then the links to the report's other pages."""
    found = soup.main.select("section.first")
    found.sort(key=lambda section: ("summary" not in section["class"], not section.find("img")))
    answer = soup.new_tag("section", attrs={"class": "answer", "aria-label": "The answer"})
    for section in found:
        section.extract()
        for code in section.select("details.messages, details.code"):
            section.append(code.extract())
        answer.append(section)
    if rest := answer.select(".rest"):
        section = soup.new_tag("section", attrs={"class": "text"})
        section.extend([text.extract() for text in rest])
        answer.append(section)
    if found:
        soup.main.insert(0, answer)
    if parts := soup.body.find("nav", class_="parts"):
        answer.insert_after(parts.extract()) if found else soup.main.insert(0, parts.extract())


def fold(soup: "BeautifulSoup") -> None:
    """Below the answer, a line for each section, which opens it, and the switch for code; on a page without an answer
    nothing is folded, and the switch stays above it."""
    if not (answer := soup.main.find("section", class_="answer")):
        return
    how = soup.new_tag("section", attrs={"class": "how"})
    title = soup.new_tag("h2", string="How it was measured")
    how.extend([title, soup.header.find(class_="switch").extract()])
    part: Tag | None = None
    for section in [s for s in answer.find_next_siblings("section") if s.parent is soup.main]:
        heading = section.find("h2") if "text" in section["class"] else None
        if heading or part is None:
            part = soup.new_tag("details", attrs={"class": "part"})
            line = soup.new_tag("summary")
            line.append(heading.extract() if heading else soup.new_tag("h2", string=BEGINNING))
            part.append(line)
            how.append(part)
        part.append(section.extract())
        if "open" in section["class"] or section.select_one(WRONG):
            part["open"] = ""
    (soup.main.find("nav", class_="parts", recursive=False) or answer).insert_after(how)
