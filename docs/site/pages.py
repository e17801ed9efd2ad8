"""The site's pages that do not lie in docs/: README, notebooks, the API, and every file that a page links to.

Pages keep the links that GitHub follows. Here a link to a page becomes one to its place in the site, a link to a
documented module one to its API page, and a link to any other file one to a page that shows that file; so none leads
out of the site, and `mkdocs build --strict` refuses one that leads nowhere. Formulas become MathML.
"""

import base64
import json
import logging
import os
import posixpath
import re
from functools import cache
from html import escape, unescape
from pathlib import Path

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from repro.plots.style import FIGURE
from repro.report.mathml import FONT, to_mathml

ROOT = Path(__file__).resolve().parents[2]
# Pages that lie elsewhere in the repository, by their place in the site.
ELSEWHERE = {
    "index.md": "README.md",
    "paper.md": "docs/paper/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "runs.md": "runs/README.md",
    "truths.md": "benchmarks/truths/README.md",
    "environments.md": "environments/README.md",
    "launch.md": "configs/launch/README.md",
    "notebooks/index.md": "notebooks/README.md",
}
# The API pages: title, what it is for, and the modules (a package stands for all of its modules).
API = {
    "training": (
        "Training",
        "Calls that train and compare arms: for stages, tutorials and cells.",
        ["front", "training", "arms"],
    ),
    "settings": ("Settings", "The schema of params.yaml.", ["settings"]),
    "methods": (
        "Methods: the batch",
        "What samplers see, and how parts combine.",
        ["methods.rollouts", "methods.method"],
    ),
    "plans": ("Methods: plans", "Which queries, with what group size.", ["methods.plans", "methods.group_sizes"]),
    "rewards": (
        "Methods: rewards, filters, memories, advantages",
        "From a verdict to an advantage.",
        ["methods.rewards", "methods.filters", "methods.memories", "methods.advantages"],
    ),
    "samplers": ("Methods: samplers", "Which rollouts, with what weight.", ["methods.samplers", "methods.selection"]),
    "objectives": ("Methods: objectives", "The loss, and how it adds up.", ["methods.objectives"]),
    "replay": ("Your own rollouts", "Read from files, and put through the arms.", ["replay"]),
    "trl": ("TRL", "The arms in TRL's trainer.", ["trl"]),
    "verl": (
        "verl",
        "The arms on verl: the front ends.",
        [
            "verl.__main__",
            "verl.presets",
            "verl.papers",
            "verl.layers",
            "verl.prepare",
            "verl.study",
            "verl.run",
            "verl.data",
            "verl.trainer",
        ],
    ),
    "stats": ("Statistics", "Intervals, costs, significance, verdicts.", ["stats"]),
}
LINK = re.compile(
    r"(\]\()(?!https?:|mailto:)([^)#\s]*)(#[^)\s]+)?(\))|((?:src|href)=\")(?!https?:|#|data:)([^\"#]+)(#[^\"]+)?(\")"
)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
ARG = re.compile(r"\\arg\\(min|max)")  # GitHub forbids \operatorname, latex2mathml has no \arg
LOADED = re.compile(
    r'<(?:script|img|iframe|source)[^>]+src="(?:https?:)?//|<link[^>]+href="(?:https?:)?//', re.IGNORECASE
)
SUFFIXES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".sh": "bash", ".cff": "yaml"}
IMAGES = (".png", ".svg", ".jpg")
PAPER = ROOT / "build/paper.pdf"  # of `make paper`

origin: dict[str, str] = {}  # of a page of the site: its file in the repository
place: dict[str, str] = {}  # and the other way round
api_page: dict[str, str] = {}  # of a documented source file: its API page and anchor


@event_priority(90)
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The API pages join the navigation."""
    os.chdir(ROOT)  # mkdocstrings finds src/ from here
    logging.getLogger("mkdocs").setLevel(logging.WARNING)  # `--quiet` would hide warnings from `--strict` too
    for entry in config.nav:
        if isinstance(entry, dict) and "API" in entry:
            entry["API"] = ["api/index.md", *({title: f"api/{name}.md"} for name, (title, _, _) in API.items())]
    return config


@event_priority(90)
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, then a page for each file that a page links to."""
    for file in files.documentation_pages():
        origin[file.src_uri] = f"docs/{file.src_uri}"
    made = {at: (ROOT / path).read_text() for at, path in ELSEWHERE.items()}
    origin.update(ELSEWHERE)
    if PAPER.exists():
        files.append(File.generated(config, PAPER.name, content=PAPER.read_bytes()))
        made["paper.md"] += f"\n[{PAPER.name}]({PAPER.name}), as set in this checkout.\n"
    for path in sorted((ROOT / "notebooks").rglob("*.ipynb")):
        if ".ipynb_checkpoints" not in path.parts:
            at = path.relative_to(ROOT).with_suffix(".md").as_posix()
            origin[at] = path.relative_to(ROOT).as_posix()
            made[at] = notebook_page(path, at, files, config)
    place.update({path: at for at, path in origin.items()})
    made |= api_pages()
    for at, text in made.items():
        files.append(File.generated(config, at, content=text))
    files.append(File.generated(config, "site/math.woff2", content=FONT.read_bytes()))
    wanted = {link for at, path in origin.items() for link in linked(made.get(at) or (ROOT / path).read_text(), path)}
    for path in sorted(wanted - place.keys() - api_page.keys()):
        add_source(path, files, config)
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """Search finds a method by its class and name, and W&B, which the index has as HTML."""
    path = Path(config.site_dir) / "search" / "search_index.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    for entry in index["docs"]:
        names = entry["location"].rpartition("#")[2].split(".")
        if names[0] == "repro" and names[-2:-1] and names[-2][0].isupper():
            entry["title"] = ".".join(names[-2:])
        entry["text"] = entry["text"].replace("W&amp;B", "W&B")
    path.write_text(json.dumps(index, ensure_ascii=False), encoding="utf-8")


@cache
def report_notebooks() -> dict[str, str]:
    """{report: the notebook it is made from}, of the stages that have one."""
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].values()
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    return {
        Path(out).name.replace("${key}", key): entry["meta"]["notebook"].replace("${key}", key)
        for stage in stages
        for key in (params[stage["foreach"][2:-1]] if "foreach" in stage else [""])
        for entry in [stage.get("do", stage)]
        for out in map(str, entry.get("outs", []))
        if out.startswith("reports/") and out.endswith(".html")
    }


def linked(text: str, page: str) -> set[str]:
    """The files of the repository that the text of `page` links to."""
    found = set()
    for match in LINK.finditer(FENCE.sub("", text)):
        target = match[2] or match[6]
        if target and not target.startswith("site-asset:"):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
            if (ROOT / path).is_file():  # one that is missing stays as it is, and the build refuses it
                found.add(path)
    return found


def add_source(path: str, files: Files, config: MkDocsConfig) -> None:
    """An image as it is; any other file as a page that shows it, left out of search."""
    if path.endswith(IMAGES):
        place[path] = f"files/{path}"
        files.append(File.generated(config, place[path], content=(ROOT / path).read_bytes()))
        return
    place[path] = f"files/{path}.md"
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        origin[place[path]] = path
        body = text
    else:
        fence = "`" * 5
        body = f"{fence}{SUFFIXES.get(Path(path).suffix, 'text')}\n{text}\n{fence}\n"
    head = f"---\nsearch: {{exclude: true}}\ntitle: {path}\n---\n\n# {path}\n\n"
    files.append(File.generated(config, place[path], content=head + body, inclusion=InclusionLevel.NOT_IN_NAV))


def api_pages() -> dict[str, str]:
    """A page for each entry of `API`, and their index."""
    pages, rows = {}, []
    for name, (title, about, packages) in API.items():
        modules = [module for package in packages for module in modules_of(package)]
        for module, file in modules:
            api_page[file] = f"api/{name}.md#{module}"
        body = "\n\n".join(f"::: {module}" for module, _ in modules)
        pages[f"api/{name}.md"] = f"# {title}\n\n{about}\n\n{body}\n"
        rows.append(f"- [{title}]({name}.md): {about}")
    pages["api/index.md"] = (
        "# API\n\nFrom the docstrings. Array names carry their axes: `advantages_N`.\n\n" + "\n".join(rows)
    )
    return pages


def modules_of(name: str) -> list[tuple[str, str]]:
    """(dotted name, file) of a module, or of a package and all of its modules that have something public."""
    file = ROOT / "src/repro" / f"{name.replace('.', '/')}.py"
    folder = file.with_suffix("")
    paths = [file] if file.exists() else [folder / "__init__.py", *sorted(folder.rglob("[a-z]*.py"))]
    return [(dotted(path), path.relative_to(ROOT).as_posix()) for path in paths]


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


@event_priority(90)
def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that GitHub follows, as links within the site."""
    at = page.file.src_uri
    here = origin.get(at)
    if here is None:
        return markdown

    def rewritten(match: re.Match) -> str:
        before, target, anchor, after = (match[i] or match[i + 4] for i in (1, 2, 3, 4))
        if not target or target.startswith("site-asset:"):
            return match[0].replace("site-asset:", "")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        if here.endswith(".ipynb") and path.endswith(".html"):  # in the reports, the report of another notebook
            path = f"notebooks/{report_notebooks().get(Path(path).name)}"
        new = place.get(path) or api_page.get(path)
        if new is None:
            return match[0]
        new, _, own_anchor = new.partition("#")
        anchor = anchor or (f"#{own_anchor}" if own_anchor else "")
        return f"{before}{posixpath.relpath(new, posixpath.dirname(at) or '.')}{anchor or ''}{after}"

    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(rewritten, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(rewritten, markdown[end:])])


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas as MathML, which browsers draw without a script."""

    def formula(match: re.Match) -> str:
        display = match[2] == "["
        try:
            tex = ARG.sub(r"\\operatorname*{arg\\,\1}", unescape(match[3]))
            math = to_mathml(tex, display=display)
        except ValueError as error:
            raise PluginError(f"{page.file.src_uri}: {error}") from error
        return f'<span class="formula">{math}</span>' if display else math

    return FORMULA.sub(formula, html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """PluginError if opening the page would send a request anywhere else."""
    if found := LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} would load something from elsewhere: {output[found.start() :][:120]}")
    return output


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """Without the page for addresses that a server lacks: its links start at the server's root, where a site on a disk
    is not."""
    return "" if template_name == "404.html" else output


def notebook_page(path: Path, at: str, files: Files, config: MkDocsConfig) -> str:
    """A notebook as Markdown, its stored outputs below its cells; figures become files beside the page."""
    cells = json.loads(path.read_text())["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    title = next((found[1] for text in texts if (found := re.search(r"^# (.+)$", text, re.MULTILINE))), path.stem)
    parts = []
    for number, (cell, text) in enumerate(zip(cells, texts, strict=True)):
        if cell["cell_type"] == "markdown":
            parts.append(text)
        elif text.strip():
            parts.append(f"```python\n{text}\n```")
            question = re.search(r'"([A-Z][^"\n]*\?)"', text)
            parts += outputs(
                cell["outputs"], f"{Path(at).stem}-{number}", question[1] if question else title, at, files, config
            )
    return "\n\n".join(parts) + "\n"


def outputs(cell: list[dict], name: str, alt: str, at: str, files: Files, config: MkDocsConfig) -> list[str]:
    """The outputs of one cell, each in the richest form that a page without scripts can show."""
    parts = []
    for number, output in enumerate(cell):
        data = {
            kind: "".join(text) if isinstance(text, list) else text for kind, text in output.get("data", {}).items()
        }
        image = next((kind for kind in ("image/svg+xml", "image/png") if kind in data), None)
        if image:
            drawn = asset(data[image], image, f"{name}-{number}", at, files, config)
            phone = data.get(FIGURE, {}).get("narrow")  # its panels below each other
            narrow = asset(phone, "image/png", f"{name}-{number}-narrow", at, files, config) if phone else ""
            source = f'<source media="(max-width: 37.5em)" srcset="{narrow}">' if narrow else ""
            says = escape(output.get("metadata", {}).get(image, {}).get("alt", alt))
            parts.append(
                f'<div class="output"><picture>{source}<img alt="{says}" src="site-asset:{drawn}"></picture></div>'
            )
        elif "text/html" in data:
            html = re.sub(r"<style.*?</style>", "", data["text/html"], flags=re.DOTALL)
            parts.append('<div class="output">\n' + re.sub(r"\n\s*\n", "\n", html) + "\n</div>")
        elif text := "".join(output.get("text", [])) or data.get("text/plain", ""):
            parts.append(f"```text\n{text.rstrip()}\n```")
    return parts


def asset(data: str, kind: str, name: str, at: str, files: Files, config: MkDocsConfig) -> str:
    """The name of a new file beside the page, with a picture in it as a notebook stores it."""
    file = f"{name}.svg" if "svg" in kind else f"{name}.png"
    content = data.encode() if "svg" in kind else base64.b64decode(data)
    files.append(File.generated(config, f"{posixpath.dirname(at)}/{file}", content=content))
    return file
