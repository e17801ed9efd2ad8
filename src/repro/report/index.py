"""The page that lists every report, by group, with its first sentence, date and commit."""

import re
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from repro.files import NotThere, write_text
from repro.paths import REPORTS
from repro.report.figures import ensure_library
from repro.report.html import TEMPLATE, finish
from repro.report.markdown import inline_math
from repro.report.safe import DATA

NAME = "index.html"
# Results first, for a reader with five minutes. Other groups follow in alphabetical order.
GROUPS = {
    "results": "Results across arms",
    "arms": "Arms",
    "policy": "Base policy",
    "theory": "Theory",
}


def group_order(groups: Mapping[str, object]) -> list[str]:
    """The names of groups in the order of the index."""
    return [*(name for name in GROUPS if name in groups), *sorted(name for name in groups if name not in GROUPS)]


def write_index(reports_dir: Path = REPORTS, sections: Mapping[str, str] | None = None) -> Path:
    """Write `index.html` for the reports in `reports_dir` and return its path.

    `sections`: {file name: heading under which its group lists it, "" for none}, in the order of the list. Only these
    are listed, since reports of arms that params.yaml no longer has stay on disk; without it, all are, by name. The
    same reports give the same bytes. NotThere if there are none.
    """
    import jinja2

    reports_dir = Path(reports_dir)
    found = sorted(f.name for f in reports_dir.glob("*.html") if f.name != NAME)
    heads = {name: read_head(reports_dir / name) for name in found if sections is None or name in sections}
    heads = {name: head for name, head in heads.items() if not head["part-of"]}
    sections = dict.fromkeys(heads, "") if sections is None else sections
    listed = [name for name in sections if name in heads]
    if not listed:
        raise NotThere(f"no reports in {reports_dir}: make them with `dvc repro` first")
    groups: dict[str, list[dict]] = {}
    for name in listed:
        parts = [read_head(reports_dir / part) for part in heads[name]["parts"].split() if part in found]
        report = heads[name] | {"section": sections[name], "parts": parts}
        groups.setdefault(report["group"], []).append(report)
    if any(heads[name]["answers"] for name in listed):
        ensure_library(reports_dir)  # reports that were downloaded come without it
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATE), autoescape=True)
    environment.filters["inline_math"] = inline_math
    shown = [
        {
            "name": group,
            "title": GROUPS.get(group, group.capitalize()),
            "sections": [(title, list(part)) for title, part in groupby(groups[group], lambda r: r["section"])],
        }
        for group in group_order(groups)
    ]
    page = environment.get_template("index.html.j2").render(groups=shown)
    return write_text(finish(page), reports_dir / NAME)


def read_head(report: Path) -> dict[str, Any]:
    """A report's metadata: `file`, `title`, `description`, `group`, `date`, `commit`, `dirty` ("" if not),
    `part-of` (the file of the report that it is a part of, "" if of none), `parts` (the files of its own, with spaces
    between them), `answers` (whether a figure does)."""
    from bs4 import BeautifulSoup

    text = report.read_text(encoding="utf-8", errors="replace").partition("</head>")[0]
    inside = re.sub(r"<(style|script)\b.*?(</\1>|\Z)", "", text, flags=re.DOTALL)
    head = BeautifulSoup(inside, "html.parser")
    meta = {m["name"]: m.get("content", "") for m in head.find_all("meta") if m.get("name")}
    return {
        "file": report.name,
        "title": head.title.get_text(strip=True) if head.title else report.stem,
        "description": meta.get("description", ""),
        "group": meta.get("repro-group") or "other",
        **{name: meta.get(f"repro-{name}", "") for name in ("date", "commit", "dirty", "part-of", "parts")},
        "answers": DATA in text,
    }
