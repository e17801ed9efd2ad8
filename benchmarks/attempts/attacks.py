"""What a model, a data set, a file or somebody's sampler could bring in: pages, answers, files, functions.

An attempt of `pages` and `answers` is held if nothing of it acts; one of `files` and `samplers` is refused in one
sentence.
"""

import functools
import io
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.attempts import places, values
from benchmarks.attempts.attacks_listed import ANSWERS, LINES_OF_JSON, MATHEMATICS, PAGES, SAMPLERS
from benchmarks.attempts.attempt import Attempt
from benchmarks.attempts.child import Ending, apart
from repro.errors import command

WORD = "attack.written"


def attempts() -> Iterator[Attempt]:
    warm()
    for name, text in PAGES.items():
        yield Attempt("attacks", "pages", name, functools.partial(apart, functools.partial(page, text)), held=True)
    for name in ANSWERS:
        yield Attempt("attacks", "answers", name, functools.partial(apart, functools.partial(answer, name)), held=True)
    if _has("math_verify"):
        for text in MATHEMATICS:
            act = functools.partial(apart, functools.partial(judged, text))
            yield Attempt("attacks", "answers", repr(text)[:60], act, held=True)
    for name, act in files().items():
        yield Attempt("attacks", "files", name, act, RIGHT.get(name, ""))
    for name, content, read in values.attempts():
        act = functools.partial(_read_damaged, name.partition(":")[0], content, read)
        yield Attempt("attacks", "values", name, functools.partial(apart, act), values.RIGHT.get(name, ""))
    for name, table in values.tables():
        for file, read in (("questions.parquet", _questions), ("mine.parquet", _own)):
            act = functools.partial(_read_damaged, file, values.parquet(table), read)
            yield Attempt("attacks", "odd tables", f"{file}: {name}", functools.partial(apart, act))
    for name, line in LINES_OF_JSON.items():
        act = functools.partial(_read_damaged, "mine.jsonl", line, _own)
        right = RIGHT.get(f"mine.jsonl: {name}", "")
        yield Attempt("attacks", "lines of JSON", name, functools.partial(apart, act), right)
    yield from places.attempts()
    for name, source in SAMPLERS.items():
        yield Attempt("attacks", "samplers", name, functools.partial(sampler, name, source), RIGHT.get(name, ""))


def warm() -> None:
    """Imports what the attempts do, once, and what transformers imports for a model."""
    import repro.arms
    import repro.atlas.design
    import repro.engine.checkpoint
    import repro.evaluation.questions  # noqa: F401
    from repro.policy.model import SHIPPED, load_policy

    page("as a page of ours")
    load_policy(SHIPPED)


def _has(package: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(package) is not None


@command
def page(text: str) -> int:
    """0 if a report that shows `text` wherever it could has nothing that acts, and its tables are whole; StageFailed if
    there is to be no such report. Where it is an output's HTML, that is well too: a report loads nothing."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

    from repro.pipeline.run import StageFailed
    from repro.report.html import render
    from repro.stats.tables import as_html, markdown, verbatim

    table = pd.DataFrame({"response": [text, "whole"], "reward": 0.5})
    shown = [{"text/html": as_html(table)}, {"text/markdown": markdown(table)}, {"text/markdown": verbatim(text)}]
    shown += [{kind: text} for kind in ("text/markdown", "text/latex", "text/plain")]
    for more in ([], [{"text/html": text}]):
        outputs = [new_output("display_data", data=data) for data in shown + more] + [new_output("stream", text=text)]
        cells = [new_markdown_cell("# Title"), new_code_cell("shown", outputs=outputs)]
        Path("n.ipynb").write_bytes(nbformat.v4.writes(new_notebook(cells=cells)).encode(errors="replace"))
        try:
            render(
                Path("n.ipynb"),
                Path("page.html"),
                text.encode(errors="replace").decode(),
                {"settings": {"about": text}},
            )
        except ValueError as error:  # told by the stage in these words
            if not more:
                raise StageFailed(f"the report cannot be made: {error}") from error
        _inert(Path("page.html").read_text())
    return 0


def _inert(html: str) -> None:
    """AssertionError if something in a page acts, or one of its two tables of two responses is torn."""
    from bs4 import BeautifulSoup

    from repro.report.safe import TAGS

    soup = BeautifulSoup(html, "html.parser")
    acting = [element for element in soup.body.find_all(True) if element.name not in TAGS or _acts(element)]
    tables = [len(each.find_all("tr")) for each in soup.find_all("table")[:2]]
    if acting or tables != [3, 3]:
        raise AssertionError(f"{acting[:1] or tables}")


def _acts(element: Any) -> bool:
    attributes = element.attrs
    source = attributes.get("src", "") + attributes.get("srcset", "")
    link = str(attributes.get("href", "#"))
    return (
        any(name.startswith("on") or name in ("style", "srcdoc", "formaction") for name in attributes)
        or not (source == "" or source.startswith("data:image/"))
        or not re.match(r"#|https?:|mailto:|[\w.-]+\.html$", link)
    )


@command
def answer(what: str) -> int:
    """0 if the call ends in time, is no `equal` and writes nothing, and the next calls are answered as they should."""
    from repro.data.sandbox import Sandbox

    Path(WORD).unlink(missing_ok=True)
    with Sandbox("benchmarks.attempts.judge:make", seconds=2, megabytes=1024) as one:
        one.call("a", "a")
        began = time.monotonic()
        given = one.call(what, WORD)
        seconds, after = time.monotonic() - began, [one.call(*each).value for each in ("aa", "ab")]
    if given.value == "equal" or after != ["equal", "different"] or Path(WORD).exists() or seconds > 60:
        raise AssertionError(f"{given}, then {after}, after {seconds:.0f} s")
    return 0


@command
def judged(text: str) -> int:
    """0 if the verdict on a response comes in time and is not `equal`."""
    from repro.data.verify import Verifier

    with Verifier(seconds=2) as verifier:
        verdict = verifier.check(text, "7")
    if verdict.correct:
        raise AssertionError(f"{verdict}")
    return 0


def files() -> dict[str, Callable[[], Ending]]:
    """{name: what reads a file that is cut, empty, noise, of another kind, or a pickle that acts}."""
    made: dict[str, Callable[[], Ending]] = {}
    for reader, (source, read) in READERS.items():
        for kind, content in _damaged(source()).items():
            act = functools.partial(_read_damaged, reader, content, read)
            made[f"{reader}: {kind}"] = functools.partial(apart, act)
    return made


def _damaged(good: bytes) -> dict[str, bytes]:
    other = io.BytesIO()
    pd.DataFrame({"other": [1]}).to_parquet(other)
    return {
        "cut": good[: len(good) // 2],
        "empty": b"",
        "noise": bytes(range(255, 0, -1)) * 4,
        "another table": other.getvalue(),
        "a pickle": b"cos\nsystem\n(S'touch executed'\ntR.",
        "JSON of another kind": b'["x"]',
        "brackets": b"[" * 100_000,
    }


@command
def _read_damaged(reader: str, content: bytes, read: Callable[[Path], Any]) -> None:
    path = Path("damaged", reader)
    shutil.rmtree("damaged", ignore_errors=True)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    read(path)


def _state(path: Path) -> Any:
    from repro.engine.checkpoint import Checkpoints

    Checkpoints(path.parent, "a").restore(None)


def _finished(path: Path) -> Any:
    from repro.engine.checkpoint import Checkpoints

    Checkpoints(path.parent, "a").finished()


def _policy(path: Path) -> Any:
    from repro.policy.model import SHIPPED, load_policy

    for file in SHIPPED.iterdir():
        if file.name != path.name and file.is_file():
            shutil.copy(file, path.parent)
    load_policy(path.parent)


def _profile(path: Path) -> Any:
    from repro.engine.profile import Profile

    Profile.load(path.parent, path.stem)


def _questions(path: Path) -> Any:
    from repro.evaluation.questions import load_questions

    load_questions(path)


def _own(path: Path) -> Any:
    from repro.verl import questions

    questions.load(str(path))


def _stored(path: Path) -> Any:
    from repro.settings import stored

    stored(path)


def _lock(path: Path) -> Any:
    from repro.pipeline.lock import stages_in

    stages_in(path.read_bytes(), str(path))


def _notebook(path: Path) -> Any:
    from repro.pipeline.closure import notebook_modules

    notebook_modules(path)


def _design(path: Path) -> Any:
    from repro.atlas.design import load

    load(path)


def _atlas(path: Path) -> Any:
    from repro.stats import atlas

    shutil.copytree("atlas/data/steps", "damaged/steps")
    shutil.copy(path, "damaged/steps/runs.parquet")
    atlas.load("runs", "steps", root=Path("damaged"))


def _verl(path: Path) -> Any:
    from repro.verl.composed import recorded

    recorded(path.parent)


def _bytes(name: str) -> Callable[[], bytes]:
    return lambda: Path(name).read_bytes()


def _parquet() -> bytes:
    frame = io.BytesIO()
    pd.DataFrame({"x": range(1000)}).to_parquet(frame)
    return frame.getvalue()


def _settings() -> bytes:
    from repro.settings import load

    return load().model_dump_json().encode()


POLICY = "src/repro/policy/pretrained"
READERS: dict[str, tuple[Callable[[], bytes], Callable[[Path], Any]]] = {  # file name: what it holds; its reader
    "state.pt": (_bytes(f"{POLICY}/model.safetensors"), _state),
    "finished.json": (lambda: b'{"fingerprint": "a", "log": {}}', _finished),
    "model.safetensors": (_bytes(f"{POLICY}/model.safetensors"), _policy),
    "config.json": (_bytes(f"{POLICY}/config.json"), _policy),
    "tokenizer.json": (_bytes(f"{POLICY}/tokenizer.json"), _policy),
    "seed-0.parquet": (_parquet, _profile),
    "questions.parquet": (_parquet, _questions),
    "mine.parquet": (_parquet, _own),
    "mine.jsonl": (lambda: b'{"prompt": "1?", "answer": 1}\n', _own),
    "settings.json": (_settings, _stored),
    "dvc.lock": (_bytes("dvc.lock"), _lock),
    "train.ipynb": (_bytes("notebooks/jobs/train.ipynb"), _notebook),
    "design.yaml": (_bytes("atlas/design.yaml"), _design),
    "runs.parquet": (_parquet, _atlas),
    "verl.yaml": (lambda: b"data: {val_files: [a.parquet]}\n", _verl),
}
RIGHT = {  # name: why it may be accepted
    "finished.json: JSON of another kind": "a log of another experiment, which is not read",
    "mine.jsonl: a line separator of Unicode": "text, which JSON does not escape",
    "mine.jsonl: line ends of Windows": "line ends, to Python",
    "mine.jsonl: line ends of old": "line ends, to Python",
    "takes none": "a batch may leave nothing to train on: the step makes no update, and pages say so",
}


@command
def _train_with(path: Path) -> None:
    from repro import arms, settings
    from repro.methods import guard, overdue
    from repro.tour.sampler import sampler_in

    guard.SECONDS, overdue.GRACE = 2.0, 2.0
    mine = sampler_in(path)
    arms.check(settings.load(scale="smoke").with_arms({"mine": {"samplers": [mine]}}))


def sampler(name: str, source: str) -> Ending:
    path = Path("samplers", re.sub(r"\W", "_", name) + ".py").resolve()
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    return apart(functools.partial(_train_with, path))
