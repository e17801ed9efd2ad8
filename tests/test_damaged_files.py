"""Whatever a file holds in the place of one of ours, its reader says in one sentence which file it is, or takes it."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from repro import closure, paths
from repro import settings as settings_module
from repro.engine.checkpoint import FINISHED, Checkpoints
from repro.errors import sentence
from repro.evaluation.questions import load_questions
from repro.experiments.profile import measure
from repro.files import Unreadable, write_json, write_parquet
from repro.pipeline import lock, stage
from repro.policy.flops import FlopCounter
from repro.protocol.log import Log
from repro.protocol.profile import Profile, Source
from repro.runs import make, store
from repro.stats import panels
from repro.verl import questions

SETTINGS = settings_module.load(scale="smoke")


def run(place: Path) -> tuple[Path, Callable]:
    kept = Checkpoints(place / "grpo-0-x", "a key")
    kept.finish(Log(steps=[{"seed": 0, "step": 0}]), {"cpu": "x"})
    return kept.folder / FINISHED, lambda: store.log_of(store.Place(kept.folder)).steps[0]["step"]


def profile(place: Path) -> tuple[Path, Callable]:
    of = np.array([[1, 0], [0, 1]])
    Profile(Source("p", "q", 1.0, 8, 0), of, of + 3, of[0]).save(place, "seed-0")
    return place / "seed-0.json", lambda: Profile.load(place, "seed-0")


def asked(place: Path) -> tuple[Path, Callable]:
    path = place / "set.parquet"
    prompt, extra = [{"role": "user", "content": "1?"}], {"id": "a", "question": "1?"}
    rows = [{"data_source": "s", "prompt": prompt, "reward_model": {"ground_truth": "1"}, "extra_info": extra}]
    write_parquet(pd.DataFrame(rows), path)
    return path, lambda: load_questions(path)


def own(place: Path) -> tuple[Path, Callable]:
    path = place / "mine.jsonl"
    path.write_text('{"prompt": "1 + 1?", "answer": 2}\n')
    return path, lambda: questions.load(str(path))


def locked(place: Path) -> tuple[Path, Callable]:
    out = "    - path: results/policy\n      hash: md5\n      md5: 30ee740466b32bfbbfa0c58145a6c914.dir\n"
    text = f"schema: '2.0'\nstages:\n  policy:\n    cmd: python\n    outs:\n{3 * out}"  # half ends in the second path
    (place / "dvc.lock").write_text(text)
    return place / "dvc.lock", lock.recorded_dependencies


def declared(place: Path) -> tuple[Path, Callable]:
    shutil.copy(paths.ROOT / "dvc.yaml", place)
    return place / "dvc.yaml", lambda: (stage._declared.cache_clear(), stage.all_stages(SETTINGS))


def notebook(place: Path) -> tuple[Path, Callable]:
    shutil.copy(paths.NOTEBOOKS / "jobs/train.ipynb", place)
    path = place / "train.ipynb"
    return path, lambda: (closure.notebook_modules(path), closure.notebook_hash(path), closure.heading(path))


def panel(place: Path) -> tuple[Path, Callable]:
    path = place / "steps" / "settings.json"
    write_json({"sections": {"engine": {}}, "arms": {}}, path)
    return path, lambda: panels.engine_of("steps")


def recorded(place: Path) -> tuple[Path, Callable]:
    from repro.verl.record import Record

    path, record = place / "state.json", Record(0, 1, 1, FlopCounter(1, 1, 1))
    record.save(path)
    return path, lambda: record.restore(path)


def started(place: Path) -> tuple[Path, Callable]:
    path = place / "start-x.json"
    write_json({"samples": 1, "accuracy": 0.5, "response_tokens": 3.0, "truncated": 0.0}, path)
    return path, lambda: make.start_in(path)


def counted(place: Path) -> tuple[Path, Callable]:
    path = place / measure.COUNTER
    write_json({"matmul_parameters": 1, "layers": 1, "width": 1}, path)
    return path, lambda: measure.load_flops(place)


def damaged(good: bytes) -> dict[str, bytes]:
    other = io.BytesIO()
    pd.DataFrame({"other": [1]}).to_parquet(other)
    contents = {"half": good[: len(good) // 2], "nothing": b"", "noise": bytes(range(255, 0, -1))}
    contents |= {"another table": other.getvalue()}
    return contents | {text[:4]: text.encode() for text in ("[]", "{}", "null", "3", '"x"')}


READERS = (run, profile, asked, own, locked, declared, notebook, panel, started, counted)


@pytest.mark.parametrize(
    "made", [*READERS, pytest.param(recorded, marks=pytest.mark.verl)], ids=lambda made: made.__name__
)
def test_a_damaged_file_is_one_sentence(made, tmp_path, monkeypatch):
    path, read = made(tmp_path)
    if made in (locked, declared):
        monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "PANELS", tmp_path)
    read()
    refused = 0
    for name, content in damaged(path.read_bytes()).items():
        path.write_bytes(content)
        try:
            read()
        except Exception as error:
            said = sentence(error)
            assert said and "\n" not in said and len(said) < 900, (name, said)
            assert path.parent.name in said or path.stem in said, (name, said)
            refused += 1
    assert refused >= 6
    stage._declared.cache_clear()


def test_a_broken_cell_of_a_notebook_is_one_sentence(tmp_path):
    cell = {"cell_type": "code", "source": ["%time\n", "x = 1\n", "x = ("]}
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": [cell]}))
    with pytest.raises(Unreadable, match=r"n\.ipynb, code cell 1, line 2: "):
        closure.notebook_modules(tmp_path / "n.ipynb")


def test_an_edit_of_dvc_yaml_that_makes_no_stages_is_one_sentence(tmp_path, monkeypatch):
    path, read = declared(tmp_path)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    text = path.read_text()
    place = text.index("foreach: ${arms}", text.index("  policy:\n"))
    path.write_text(text[:place] + text[place:].replace("foreach: ${arms}", "foreach: ${nope.x}", 1))
    with pytest.raises(Unreadable, match=r"dvc.yaml: '\$\{nope.x\}' names nothing in params.yaml"):
        read()
    monkeypatch.undo()
    stage._declared.cache_clear()


def test_a_line_of_json_may_hold_what_ends_a_line_elsewhere(tmp_path):
    path, read = own(tmp_path)
    path.write_text('{"prompt": "1\u2028+\x851?", "answer": 2}\n{"prompt": "2?", "answer": 2}\n', encoding="utf-8")
    assert [row["prompt"][0]["content"] for row in read()] == ["1\u2028+\x851?", "2?"]
