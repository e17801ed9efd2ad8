"""`make verify`: what counts as the same, as different, and as a repetition within the prediction intervals."""

import shutil
import subprocess

import pandas as pd
import pytest
import yaml

from repro import paths
from repro.experiments.results.repeated import REPEATED
from repro.files import write_parquet
from repro.pipeline.verify import NothingToVerify, verify


def lock(**hashes: str) -> str:
    outs = [{"path": f"results/{name.replace('_', '/')}", "md5": md5} for name, md5 in hashes.items()]
    outs.append({"path": "reports/results.html", "md5": str(hash(frozenset(hashes.items())))})  # never compared
    return yaml.safe_dump({"stages": {"all": {"outs": outs}}})


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A repository whose commit states two arms' data."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    (tmp_path / "dvc.lock").write_text(lock(policy="p", train_grpo="a", train_zvf="b"))
    for path in ("policy", "train/grpo", "train/zvf"):
        (tmp_path / "results" / path).mkdir(parents=True)
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def repeated(project, inside: int, outside: int) -> None:
    """The stage `results` has compared the runs made here with those in git."""
    rows = [
        {"arm": f"arm-{place}", "seeds": 5, "same_bits": 0, "difference": 0.05, "stored": 0.0, "low": -0.1, "high": 0.1}
        | {"inside": place < inside}
        for place in range(inside + outside)
    ]
    write_parquet(pd.DataFrame(rows), project / "results/study" / REPEATED)


def test_identical_outputs_are_counted_and_reports_are_not(project):
    outcome = verify()
    assert outcome.holds and outcome.different == []
    assert outcome.sentences() == "3 of 3 data outputs are bit-identical to the committed dvc.lock."


def test_other_bits_hold_while_differences_lie_in_their_prediction_intervals(project):
    (project / "dvc.lock").write_text(lock(policy="p", train_grpo="a", train_zvf="other"))
    repeated(project, inside=19, outside=1)
    outcome = verify()
    assert outcome.holds and outcome.different == ["results/train/zvf"]
    assert "0 of 100 runs made here have the bits of those in git; 19 of 20 differences" in outcome.sentences()
    assert "Outside: arm-19: +0.0500, expected -0.1000 to +0.1000." in outcome.sentences()
    repeated(project, inside=15, outside=5)
    assert not verify().holds


def test_other_bits_of_runs_that_nothing_is_known_of_do_not_hold(project):
    (project / "dvc.lock").write_text(lock(policy="other", train_grpo="a", train_zvf="b"))
    assert not verify().holds


def test_a_fresh_clone_has_computed_nothing(project):
    shutil.rmtree(project / "results")
    outcome = verify()
    assert not outcome.holds and outcome.same == [] and len(outcome.missing) == 3
    assert outcome.sentences().startswith("0 of 3 data outputs are bit-identical")


def test_without_a_commit_to_hold_against_there_is_one_sentence(project):
    with pytest.raises(NothingToVerify, match=r"git has no dvc.lock at v9"):
        verify("v9")
    (project / "dvc.lock").unlink()
    with pytest.raises(NothingToVerify, match="run `dvc repro` first"):
        verify()
