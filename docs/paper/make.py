"""The project as a paper, build/paper.pdf: `make paper`, after `make repro`.

Text is paper.typ, which reads tables and numbers from this checkout; figures are taken from its reports."""

import base64
import sys
from pathlib import Path

import typst
from bs4 import BeautifulSoup

from repro.errors import Refused, command
from repro.machine import commit
from repro.paths import BUILD, REPORTS, ROOT

# Of a report, the figure whose title has these words.
FIGURES = {
    "front": ("prices", "Which methods end higher at temperature 1"),
    "any_price": ("prices", "What does a method gain, at what price"),
    "ahead": ("longer_bill", "When is a method ahead"),
    "rates": ("prices", "Which learning rate suits which method"),
    "gates": ("gates", "What does GRPO add"),
    "proxies": ("fidelity", "Which proxy predicts"),
    "profile": ("drift", "Does the first profile still hold"),
    "sharpening": ("sharpening", "What does training add"),
    "sgd": ("theory-sgd", "Which sampling reaches a target error"),
    "variance": ("theory-variance", "How many of the groups trained on have a signal"),
    "language_model": ("language-model", "Which methods end higher than GRPO on a language model"),
}


def figure(report: str, title: str, folder: Path = REPORTS) -> bytes:
    """The picture, SVG or PNG, of the first figure of a report whose description has `title`."""
    page = folder / f"{report}.html"
    if not page.exists():
        raise Refused(f"make paper: {page.relative_to(ROOT)} is missing: `make repro` first")
    for image in BeautifulSoup(page.read_text(), "html.parser").find_all("img"):
        if title in image.get("alt", ""):
            return base64.b64decode(image["src"].split(",", 1)[1])
    raise Refused(f"make paper: {page.name} has no figure with the title {title!r}: name another in docs/paper/make.py")


@command
def main() -> None:
    """Write the figures, then the paper."""
    folder = BUILD / "paper"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (report, title) in FIGURES.items():
        (folder / name).write_bytes(figure(report, title))
    told = {"commit": commit()["commit"] or "none: not a git checkout"}
    typst.compile(Path(__file__).with_name("paper.typ"), output=BUILD / "paper.pdf", root=ROOT, sys_inputs=told)
    print((BUILD / "paper.pdf").relative_to(ROOT))


if __name__ == "__main__":
    sys.exit(main())
