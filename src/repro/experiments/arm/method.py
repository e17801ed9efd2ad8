"""What an arm consists of, read from the functions themselves: their summary, equation, parameters and source file."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro import arms
from repro.methods.objectives.aggregate import token_coefficients
from repro.paths import ROOT, SOURCE
from repro.settings import Settings

METHODS = ROOT / "docs" / "methods.md"  # its equations are displayed; a wheel and a copy without docs/ have none


@dataclass(frozen=True)
class Part:
    """One function of a method: `summary` is its docstring's first paragraph, `equation` its indented block ("" if
    none), `deviations` how it differs from the paper ("" if it does not say), `file` relative to the project's root,
    `formulas` what docs/methods.md has in place of the equation, as TeX (empty if nothing)."""

    kind: str
    name: str
    parameters: dict[str, Any]
    summary: str
    equation: str
    deviations: str
    file: str
    formulas: tuple[str, ...] = ()

    @property
    def markdown(self) -> str:
        """The part for reading: name, parameters and file, then summary and formulas, else the equation."""
        values = "".join(f", {name} = {value}" for name, value in self.parameters.items())
        summary = self.summary.replace("*", r"\*")
        text = f"**{self.kind} `{self.name}`**{values} (`{self.file}`)\n\n{summary}"
        if self.formulas:
            return "\n\n".join([text, *(f"$${tex}$$" for tex in self.formulas)])
        return f"{text}\n\n```text\n{self.equation}\n```" if self.equation else text


def parts(name: str, settings: Settings) -> list[Part]:
    """The parts of an arm, in the order in which a step uses them."""
    method = arms.build(name, settings.arm(name))
    functions = [("Query plan", method.plan), ("Reward", method.reward)]
    functions += [(kind, part) for kind, part in (("Filter", method.filter), ("Memory", method.memory)) if part]
    functions += [("Advantage", method.advantage), *(("Sampler", sampler) for sampler in method.samplers)]
    functions += [("Objective", method.objective)]
    rows = [_part(kind, bound.func, bound.keywords) for kind, bound in functions]
    return [*rows, _aggregation(method.aggregation)]


def distinctive(name: str, settings: Settings) -> list[Part]:
    """The parts in which an arm differs from the baseline; of the baseline, and of an arm that has the same parts,
    those that make its loss."""
    usual, own = parts(settings.baseline, settings), parts(name, settings)
    return [part for part in own if part not in usual] or [
        part for part in own if part.kind in ("Advantage", "Objective", "Aggregation")
    ]


def formulas(page: str, file: str) -> tuple[str, ...]:
    """The displayed formulas of the section of the Markdown `page` that links to `file`, then those of the sections
    around it; none if the section itself has none. `file`: relative to the project's root, the page in docs/."""
    opened: list[tuple[int, list[str]]] = []
    for hashes, text in re.findall(r"^(#+) [^\n]*\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL):
        around = [section for section in opened if section[0] < len(hashes)]
        opened = [(len(hashes), re.findall(r"\$\$(.+?)\$\$", text, re.DOTALL)), *around]
        if f"(../{file})" in text and opened[0][1]:
            return tuple(tex for _, found in opened for tex in found)
    return ()


def _part(kind: str, function: Callable, parameters: dict[str, Any]) -> Part:
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    paragraphs = [text for text in paragraphs if not text.startswith(">>>")] or [""]  # examples are for readers of code
    equation = next((text for text in paragraphs if text.startswith("    ")), "")
    file = _file(inspect.getfile(function))
    page = METHODS.read_text(encoding="utf-8") if METHODS.is_file() else ""
    deviations = re.search(r"Deviations?: (.*)", " ".join(paragraphs[-1].split()))
    return Part(
        kind,
        function.__name__,
        dict(parameters),
        _flowing(paragraphs[0]),
        inspect.cleandoc(equation),
        deviations[1] if deviations else "",
        file,
        formulas(page, file),
    )


def _aggregation(name: str) -> Part:
    """Its entry in the docstring of `token_coefficients`: the coefficient of a token's loss."""
    entries = re.split(r"^(\S+): ", inspect.getdoc(token_coefficients) or "", flags=re.MULTILINE)
    by_name = dict(zip(entries[1::2], entries[2::2], strict=True))
    coefficient, *_ = by_name[name].split("\nA sequence")
    summary = f"Coefficient of a token's loss: {_flowing(coefficient)}"
    return Part("Aggregation", name, {}, summary, "", "", _file(inspect.getfile(token_coefficients)))


def _file(path: str) -> str:
    return str(Path("src/repro") / Path(path).resolve().relative_to(SOURCE.resolve()))


def _flowing(paragraph: str) -> str:
    """On one line, without the sentences on errors."""
    return re.sub(r" ?\b(Raises )?(ValueError|NoSignal)\b[^.]*\.", "", " ".join(paragraph.split()))
