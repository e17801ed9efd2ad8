"""What an arm consists of, read from the functions themselves: their summary, equation, parameters and source file."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro import arms
from repro.methods.objectives.aggregate import token_coefficients
from repro.paths import SOURCE
from repro.settings import Settings


@dataclass(frozen=True)
class Part:
    """One function of a method: `summary` is its docstring's first paragraph, `equation` its indented block ("" if
    none), `deviations` how it differs from the paper ("" if it does not say), `file` relative to the project's root."""

    kind: str
    name: str
    parameters: dict[str, Any]
    summary: str
    equation: str
    deviations: str
    file: str

    @property
    def markdown(self) -> str:
        """The part for reading: name, parameters and file, then summary and equation."""
        values = "".join(f", {name} = {value}" for name, value in self.parameters.items())
        summary = self.summary.replace("*", r"\*")
        text = f"**{self.kind} `{self.name}`**{values} (`{self.file}`)\n\n{summary}"
        return f"{text}\n\n```text\n{self.equation}\n```" if self.equation else text


def parts(name: str, settings: Settings) -> list[Part]:
    """The parts of an arm, in the order in which a step uses them."""
    method = arms.build(name, settings.arm(name))
    functions = [("Query plan", method.plan), ("Reward", method.reward)]
    functions += [("Filter", method.filter)] if method.filter else []
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


def _part(kind: str, function: Callable, parameters: dict[str, Any]) -> Part:
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    paragraphs = [text for text in paragraphs if not text.startswith(">>>")] or [""]  # examples are for readers of code
    equation = next((text for text in paragraphs if text.startswith("    ")), "")
    deviations = re.search(r"Deviations?: (.*)", " ".join(paragraphs[-1].split()))
    return Part(
        kind,
        function.__name__,
        dict(parameters),
        _flowing(paragraphs[0]),
        inspect.cleandoc(equation),
        deviations[1] if deviations else "",
        _file(inspect.getfile(function)),
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
