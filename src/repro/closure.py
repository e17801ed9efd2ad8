"""The code that a stage or a run depends on: the modules of `repro` that are imported, found without running them."""

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from repro import DOORS
from repro.files import Unreadable, read_json
from repro.paths import SOURCE

APART = ("settings", "errors.py", "stops.py", "__init__.py")  # whose values a manifest has; wording; what only finds
# What trains is named by the keys of runs (repro.runs.key), so a stage that asks for runs need not name its code too.
LEAVES = ("runs", "training.py")


def module_file(module: str, source: Path = SOURCE) -> Path | None:
    """The file of `repro.a.b`, or None if there is no such module (for instance, for a name defined in `repro.a`)."""
    base = source.joinpath(*module.split(".")[1:])
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


@cache  # over a hundred stages share files
def imported_modules(code: str) -> frozenset[str]:
    """Every `repro…` module that a source text imports, at any depth of nesting, parents included."""
    names: set[str] = set()
    for node in _executed(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    ours = {DOORS.get(name.removeprefix("repro."), name) for name in names if name.split(".")[0] == "repro"}
    return frozenset(".".join(name.split(".")[:depth]) for name in ours for depth in range(1, name.count(".") + 2))


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements of a syntax tree, except those under `if TYPE_CHECKING`, which never run."""
    for node in ast.iter_child_nodes(tree):
        typed = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        if not typed and not isinstance(node, ast.expr):
            yield node
            yield from _executed(node)


def closure(modules: Iterable[str], source: Path = SOURCE) -> list[Path]:
    """The files of `modules` and of everything in `repro` that they import, directly or not, sorted; without APART."""
    waiting, files = set(modules), set()
    while waiting:
        path = module_file(waiting.pop(), source)
        if path is None or path in files or (part := path.relative_to(source).parts[0]) in APART:
            continue
        files.add(path)
        if part not in LEAVES:
            with _naming(path):
                waiting |= imported_modules(path.read_text(encoding="utf-8"))
    return sorted(files)


@contextmanager
def _naming(place: Path | str) -> Iterator[None]:
    """Errors of syntax and encoding, with the file's name."""
    try:
        yield
    except SyntaxError as error:
        raise Unreadable(f"{place}, line {error.lineno}: {error.msg}; correct the file") from None
    except ValueError as error:  # not UTF-8, or a NUL
        raise Unreadable(f"{place} is not Python source ({error}); correct the file") from None


def _cells(notebook: Path) -> list[dict[str, Any]]:
    """The cells of a notebook."""
    return read_json(notebook, "restore the notebook, as with `git checkout`", ["cells"])["cells"]


def notebook_modules(notebook: Path) -> set[str]:
    """The modules of `repro` that a notebook's cells import."""
    modules: set[str] = set()
    for number, code in enumerate(notebook_code(notebook), 1):
        with _naming(f"{notebook}, code cell {number}"):
            modules |= imported_modules(code)
    return modules


def notebook_code(notebook: Path) -> list[str]:
    """The code of each code cell, without IPython magics."""
    cells = ["".join(cell["source"]).splitlines() for cell in _cells(notebook) if cell["cell_type"] == "code"]
    return ["\n".join(line for line in lines if not line.lstrip().startswith(("%", "!"))) for lines in cells]


def heading(notebook: Path) -> str:
    """The notebook's title: its first line, a heading."""
    return next(iter("".join(_cells(notebook)[0]["source"]).splitlines()), notebook.stem).lstrip("# ")


def code_hash(path: Path) -> str:
    """A hash of the code of a Python file, ignoring comments, docstrings, layout and the words of errors."""
    with _naming(path):
        return _code_hash(path.read_text(encoding="utf-8"))


@cache
def _code_hash(code: str) -> str:
    tree = ast.parse(code)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if documented and ast.get_docstring(node, clean=False) is not None:
            node.body = body[1:] or [ast.Pass()]
        if isinstance(node, ast.Raise):
            _Wordless().generic_visit(node)
    return digest(ast.unparse(tree).encode())


class _Wordless(ast.NodeTransformer):
    """Empties every string."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Constant:
        return ast.Constant("")

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant("") if isinstance(node.value, str) else node


def text_hash(path: Path) -> str:
    """A hash of the bytes of a file."""
    return digest(path.read_bytes())


def notebook_hash(notebook: Path) -> str:
    """A hash of a notebook's cells: kind, source and tags, ignoring outputs, counts and other metadata."""
    cells = _cells(notebook)
    essence = [[cell["cell_type"], "".join(cell["source"]), cell.get("metadata", {}).get("tags", [])] for cell in cells]
    return digest(json.dumps(essence).encode())


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
