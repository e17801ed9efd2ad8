"""`make verify`: what counts as the same, as different, and as different within the stated intervals."""

import json
import shutil
import subprocess

import pandas as pd
import pytest
import yaml

from repro import paths
from repro.pipeline.verify import NothingToVerify, verify


def lock(**hashes: str) -> str:
    outs = [{"path": f"results/{name.replace('_', '/')}", "md5": md5} for name, md5 in hashes.items()]
    outs.append({"path": "reports/results.html", "md5": str(hash(frozenset(hashes.items())))})  # never compared
    return yaml.safe_dump({"stages": {"all": {"outs": outs}}})


METRICS = {
    "grpo": {"accuracy": 0.65, "accuracy_low": 0.64, "accuracy_high": 0.66, "difference": 0.0, "difference_low": None},
    "zvf": {"accuracy": 0.66, "accuracy_low": 0.65, "accuracy_high": 0.67},
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A repository whose commit states two arms' data and figures."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr("repro.pipeline.verify.figures", lambda table: json.loads(table.loc[0, "figures"]))
    (tmp_path / "dvc.lock").write_text(lock(policy="p", train_grpo="a", train_zvf="b"))
    for path in ("policy", "train/grpo", "train/zvf"):
        (tmp_path / "results" / path).mkdir(parents=True)
    (tmp_path / "tables").mkdir()
    measured(tmp_path)
    (tmp_path / "params.yaml").write_text("baseline: grpo\n")
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def measured(project, **accuracies: float) -> None:
    now = {arm: {**row, "accuracy": accuracies.get(arm, row["accuracy"])} for arm, row in METRICS.items()}
    pd.DataFrame({"figures": [json.dumps(now)]}).to_parquet(project / "tables/evaluations.parquet")


def test_identical_outputs_are_counted_and_reports_are_not(project):
    outcome = verify()
    assert outcome.holds and outcome.different == []
    assert outcome.sentences() == "3 of 3 data outputs are bit-identical to the committed dvc.lock."


def test_a_different_output_holds_while_its_figures_lie_within_the_stated_interval(project):
    (project / "dvc.lock").write_text(lock(policy="p", train_grpo="a", train_zvf="other"))
    measured(project, zvf=0.646, grpo=0.1)  # grpo's data are identical, so its figures are not looked at
    outcome = verify()
    assert outcome.holds and outcome.different == ["results/train/zvf"] and len(outcome.inside) == 1
    measured(project, zvf=0.675)  # beyond 0.66 ± √2 · 0.01
    outcome = verify()
    assert not outcome.holds and outcome.outside == ["zvf: accuracy 0.675, expected 0.645858 to 0.674142"]
    assert "2 of 3" in outcome.sentences() and "0 lie within" in outcome.sentences()


@pytest.mark.parametrize("other", [{"policy": "other"}, {"train_grpo": "other"}])
def test_another_base_policy_or_baseline_puts_every_figure_to_the_test(project, other):
    (project / "dvc.lock").write_text(lock(**{"policy": "p", "train_grpo": "a", "train_zvf": "b"} | other))
    measured(project, grpo=0.1)
    outcome = verify()
    assert outcome.outside == ["grpo: accuracy 0.1, expected 0.635858 to 0.664142"] and len(outcome.inside) == 1


def test_a_missing_output_is_named(project):
    (project / "dvc.lock").write_text(lock(policy="p", train_grpo="a"))
    outcome = verify()
    assert not outcome.holds and "Not there: results/train/zvf; run `dvc repro` first." in outcome.sentences()


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
