"""Files of the project's own with the right keys and a wrong value somewhere, and tables of odd types."""

import copy
import functools
import io
import json
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

NAN, INFINITY = float("nan"), float("inf")
NUMBER, TEXT, TRUTH = ("x", None, -1, NAN, [1], {}, True), (3, None, ["x"], True), ("x", None, 2)
ROW = {"seed": 0, "step": 0, "accuracy": 0.5, "diverged": False, "family": "sum", "updates": 1, "flops_train": 1.0}
LOG = {"steps": [ROW], "evaluations": [ROW], "questions": [], "rollouts": [], "selection": [], "seconds": []}


def attempts() -> Iterator[tuple[str, bytes, Callable[[Path], Any]]]:
    """(name of the file and what is wrong, its content, what reads it)."""
    for file, (good, read) in FILES.items():
        for place, value in _leaves(good):
            for wrong in _wrong(value):
                name = f"{file}: {place} is {wrong!r}"
                yield name, json.dumps(_with(good, place, wrong)).encode(), read


def tables() -> Iterator[tuple[str, pd.DataFrame]]:
    """{what is odd: a table} of one row of a question, and of none."""
    prompt, extra = [{"role": "user", "content": "1?"}], {"id": "a", "question": "1?"}
    good = {"data_source": "s", "prompt": prompt, "reward_model": {"ground_truth": "1"}, "extra_info": extra}
    odd = {
        "prompt": ("1?", 3, None, [], [1], [{"role": "user"}], [{"role": 1, "content": 2}], pd.Timestamp(0), b"1?"),
        "reward_model": ("1", None, {"other": "1"}, {"ground_truth": None}, [1]),
    }
    for column, values in odd.items():
        for value in values:
            yield f"{column} is {value!r}", pd.DataFrame([{**good, column: value}])
    yield "no rows", pd.DataFrame([good]).iloc[:0]
    yield "no columns", pd.DataFrame(index=[0])
    yield "other names", pd.DataFrame([good]).rename(columns=str.upper)


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield from _leaves(inner, f"{place}.{key}" if place else str(key))
    if place:
        yield place, value


def _wrong(value: Any) -> tuple:
    if isinstance(value, bool):
        return TRUTH
    if isinstance(value, int | float):
        return NUMBER
    return TEXT if isinstance(value, str) else ("x", 3, None)


def _with(content: Any, place: str, value: Any) -> Any:
    changed = copy.deepcopy(content)
    *way, last = [int(part) if part.isdecimal() else part for part in place.split(".")]
    functools.reduce(operator.getitem, way, changed)[last] = value
    return changed


def parquet(table: pd.DataFrame) -> bytes:
    whole = io.BytesIO()
    table.to_parquet(whole)
    return whole.getvalue()


def _seconds(path: Path) -> Any:
    from repro.training import profile_seconds

    profile_seconds(path.parent)


def _counter(path: Path) -> Any:
    from repro.experiments.profile.measure import load_flops

    load_flops(path.parent)


def _start(path: Path) -> Any:
    from repro.atlas.run import start_in

    start_in(path)


def _finished(path: Path) -> Any:
    from repro.engine.checkpoint import Checkpoints

    Checkpoints(path.parent, "a").finished()


def _chunk(path: Path) -> Any:
    from repro.evaluation.store import PARTS, Store

    table = pd.DataFrame({name: ["x"] for name in ("id", "correct", "finished", "response_tokens")})
    store, content = Store(path.parent, {}), path.read_bytes()
    store.write(0, table, {})
    path.parent.joinpath(PARTS, "000000.json").write_bytes(content)
    store.read(0)


def _generation(path: Path) -> Any:
    from types import SimpleNamespace

    from repro.evaluation.model import stops_of

    stops_of(path.parent, SimpleNamespace(eos_token_id=0))


def _panel(path: Path) -> Any:
    from repro.files import read_json
    from repro.stats.panel import STORED
    from repro.stored import checked

    checked(read_json(path, "git checkout it"), path, "git checkout it", STORED)


FILES: dict[str, tuple[dict[str, Any], Callable[[Path], Any]]] = {
    "seconds.json": ({"seconds_per_sample": 1.0}, _seconds),
    "flops.json": ({"matmul_parameters": 10, "layers": 2, "width": 8}, _counter),
    "start-x.json": ({"samples": 4, "accuracy": 0.5, "response_tokens": 3.0, "truncated": 0.0}, _start),
    "finished.json": ({"fingerprint": "a", "log": LOG}, _finished),
    "chunk.json": ({"sample": 1.0, "verify": 2.0}, _chunk),
    "generation_config.json": ({"eos_token_id": [1, 2]}, _generation),
    "panel.json": ({"sections": {"task": {}}, "arms": {"grpo": {}}}, _panel),
}
RIGHT = {  # name: why it may be accepted
    **{f"finished.json: fingerprint is {wrong!r}": "of another run, which is not read" for wrong in TEXT},
    "generation_config.json: eos_token_id is None": "a configuration need not name an end",
    "generation_config.json: eos_token_id is 3": "one end in place of several",
}
