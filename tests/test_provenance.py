"""Provenance: the commit, what counts as dirty, and the hash of the data shown."""

import hashlib
import re
import subprocess

import pandas as pd
import pytest

from repro.machine import commit
from repro.report.provenance import collect, hash_files


def test_hash_is_of_names_and_contents(tmp_path):
    (tmp_path / "d").mkdir()
    for name, content in (("b", "1"), ("d/a", "2")):
        (tmp_path / name).write_text(content)
    lines = "".join(f"{n}\0{hashlib.sha256(c).hexdigest()}\n" for n, c in (("b", b"1"), ("d/a", b"2")))
    expected = "sha256:" + hashlib.sha256(lines.encode()).hexdigest()[:12]
    assert hash_files([tmp_path / "d", tmp_path / "b"], tmp_path) == expected
    assert hash_files([tmp_path / "b", tmp_path / "d" / "a"], tmp_path) == expected
    (tmp_path / "b").write_text("3")
    assert hash_files([tmp_path], tmp_path) != expected
    with pytest.raises(FileNotFoundError, match="absent"):
        hash_files([tmp_path / "absent"], tmp_path)


def test_dirty_means_code_or_settings_and_notebooks_are_not_filtered_for_it(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit(tmp_path) == {"commit": None, "dirty": None}
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    for name in ("params.yaml", "dvc.lock", "a.ipynb"):
        (tmp_path / name).write_text("1")
    (tmp_path / ".gitattributes").write_text("*.ipynb filter=nbstripout")
    slow = ["config", "filter.nbstripout.clean", f"echo >> {tmp_path.parent}/filtered"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "--no-verify", "-m", "one"], slow):
        subprocess.run([*git, *arguments], check=True, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    for name, text in {"dvc.lock": "2", "README.md": "2", "a.ipynb": "1"}.items():
        (tmp_path / name).write_text(text)
    said = commit(tmp_path)
    assert not (tmp_path.parent / "filtered").exists()
    assert re.fullmatch("[0-9a-f]{12}", said["commit"]) and said["dirty"] is False
    (tmp_path / "params.yaml").write_text("2")
    assert commit(tmp_path) == {**said, "dirty": True}


def test_collect_without_data_or_seconds():
    said = collect(settings={"arm": "grpo"}, seeds=(0, 1))
    assert said["settings"] == {"arm": "grpo"} and said["seeds"] == [0, 1]
    assert said["data"] is None and said["seconds"] is None
    assert said["packages"]["pandas"] == pd.__version__ and said["hardware"]["cores"] >= 1 and said["hardware"]["cpu"]
