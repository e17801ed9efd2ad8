"""The page that lists every report, by group, with its first sentence, date and commit."""

from pathlib import Path

from repro.files import write_whole
from repro.paths import REPORTS
from repro.report.html import TEMPLATE
from repro.report.markdown import inline_math
from repro.report.mathml import add_font

NAME = "index.html"
# Results first, for a reader with five minutes. Other groups follow in alphabetical order.
GROUPS = {
    "results": "Results across arms",
    "arms": "Arms",
    "policy": "Base policy",
    "theory": "Theory",
}


def write_index(reports_dir: Path = REPORTS, names: set[str] | None = None) -> Path:
    """Write `index.html` for the reports in `reports_dir` and return its path. `names`: list only these, since reports
    of arms that params.yaml no longer has stay on disk.

    The same reports give the same bytes. FileNotFoundError if there are none.
    """
    import jinja2

    reports_dir = Path(reports_dir)
    files = sorted(f for f in reports_dir.glob("*.html") if f.name != NAME and (names is None or f.name in names))
    if not files:
        raise FileNotFoundError(f"no reports in {reports_dir}: make them with `dvc repro` first")
    groups: dict[str, list[dict]] = {}
    for report in map(read_head, files):
        groups.setdefault(report["group"], []).append(report)
    order = [*(g for g in GROUPS if g in groups), *sorted(g for g in groups if g not in GROUPS)]
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATE), autoescape=True)
    environment.filters["inline_math"] = inline_math
    page = environment.get_template("index.html.j2").render(
        groups=[{"name": g, "title": GROUPS.get(g, g.capitalize()), "reports": groups[g]} for g in order]
    )
    write_whole(reports_dir / NAME, lambda partial: partial.write_text(add_font(page), encoding="utf-8"))
    return reports_dir / NAME


def read_head(report: Path) -> dict[str, str]:
    """A report's metadata: `file`, `title`, `description`, `group`, `date`, `commit`, `dirty` ("" if not)."""
    from bs4 import BeautifulSoup

    head = BeautifulSoup(report.read_text(encoding="utf-8").partition("</head>")[0], "html.parser")
    meta = {m["name"]: m.get("content", "") for m in head.find_all("meta") if m.get("name")}
    return {
        "file": report.name,
        "title": head.title.get_text(strip=True) if head.title else report.stem,
        "description": meta.get("description", ""),
        "group": meta.get("repro-group") or "other",
        **{name: meta.get(f"repro-{name}", "") for name in ("date", "commit", "dirty")},
    }
