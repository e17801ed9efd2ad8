"""The page that lists every report, by group, with its first sentence: where to start, and what is not made yet."""

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from repro.files import NotThere, write_text
from repro.paths import REPORTS
from repro.report.figures import ensure_library
from repro.report.front_page import PICTURE
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
    "cluster": "On other trainers",
}
# For five minutes; PICTURE is of the first.
START = ("prices.html", "validity.html", "language-model.html", "equal_cost.html")


def group_order(groups: Mapping[str, object]) -> list[str]:
    """The names of groups in the order of the index."""
    return [*(name for name in GROUPS if name in groups), *sorted(name for name in groups if name not in GROUPS)]


class Entry(NamedTuple):
    """A report that the index lists, made or not: `section` is the heading within its group, `command` makes it."""

    file: str
    group: str
    section: str
    title: str
    command: str


def write_index(reports_dir: Path = REPORTS, listed: Iterable[Entry] | None = None) -> Path:
    """Write `index.html` for the reports in `reports_dir` and return its path; NotThere if there are none.

    `listed`: the reports of the project in their order; those that are not made yet are named with their command, and
    no others are listed, since reports of arms that params.yaml no longer has stay on disk. Without it, all, by name.
    """
    import jinja2

    found = {}
    for report in sorted({*reports_dir.glob("*.html")} - {reports_dir / NAME}):
        with suppress(FileNotFoundError):  # DVC has just removed it, for a stage beside the one that asks
            found[report.name] = read_head(report)
    if listed is None:
        listed = [Entry(name, head["group"], "", head["title"], "") for name, head in found.items()]
    listed = [entry for entry in listed if not found.get(entry.file, {}).get("part-of")]
    made = [found[entry.file] for entry in listed if entry.file in found]
    if not made:
        raise NotThere(f"no reports in {reports_dir}: make them with `dvc repro` first")
    groups: dict[str, list[dict]] = {}
    for entry in listed:
        head = found.get(entry.file, {"parts": ""})
        parts = [found[part] for part in head["parts"].split() if part in found]
        row = entry._asdict() | head | {"parts": parts, "made": entry.file in found}
        groups.setdefault(entry.group, []).append(row)
    if any(head["answers"] for head in made):
        ensure_library(reports_dir)  # reports that were downloaded come without it
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATE), autoescape=True)
    environment.filters["inline_math"] = inline_math
    shown = [
        {
            "name": group,
            "title": GROUPS.get(group, group.capitalize()),
            "asked": _same_question(rows),
            "where": same.pop() if len(same := {row.get("where", "") for row in rows}) == 1 < len(rows) else "",
            "sections": [(title, list(part)) for title, part in groupby(rows, lambda r: r["section"])],
        }
        for group, rows in ((name, groups[name]) for name in group_order(groups))
    ]
    state, _ = Counter((head["commit"], head["dirty"]) for head in made).most_common(1)[0]
    start = [found[name] for name in START if name in found]
    picture = b64encode(PICTURE.read_bytes()).decode() if START[0] in found and PICTURE.exists() else ""
    page = environment.get_template("index.html.j2").render(groups=shown, start=start, picture=picture, state=state)
    return write_text(finish(page), reports_dir / NAME)


def _same_question(reports: list[dict]) -> str:
    """What follows the name in every title, as in `GRPO: what did it train on?`; it is said once, for all of them."""
    names, asked = zip(*(report["title"].rpartition(": ")[::2] for report in reports), strict=True)
    if len(reports) < 2 or len(set(asked)) > 1 or not all(names):
        return ""
    for report, name in zip(reports, names, strict=True):
        report["title"] = name
    return asked[0].capitalize()


def read_head(report: Path) -> dict[str, Any]:
    """A report's metadata: file, title, description, group, date, commit, dirty, part-of (the file that it is a part
    of), parts (files, with spaces between them) and where (bed, measure and price), each "" where there is none;
    answers: whether a figure does."""
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
        **{name: meta.get(f"repro-{name}", "") for name in ("date", "commit", "dirty", "part-of", "parts", "where")},
        "answers": DATA in text,
    }
