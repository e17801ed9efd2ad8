"""The language model's training: answers on it beside those on the study's base policies, from runs made by hand."""

from itertools import product

import pandas as pd
import pytest

from repro import settings as settings_module
from repro.experiments import language_model as trained
from repro.files import write_parquet
from repro.stats import panels
from repro.stats.panels import NoRuns

STATISTICS = settings_module.load().statistics
GAIN = {"grpo": 0.0, "pods": 0.1, "d3s": -0.1, "random-quarter": 0.0}  # at the end


def write(folder, panel: str, policies: list[str], seeds: list[int], gains=GAIN, without: str = "") -> None:
    """Runs from 0.3 to 0.5 and their gain, with a little of each seed's own; of sums they solve all in the end."""
    runs, curves, questions = [], [], []
    for policy, (arm, gain), seed in product(policies, gains.items(), seeds):
        run = f"{panel}/{policy}/{arm}/{seed}"
        if run == without:
            continue
        key = {"run": run, "panel": panel, "policy": policy, "arm": arm, "seed": seed}
        runs.append({**key, "varied": '{"engine.learning_rate": 1e-5}'})
        own = 0.001 * ((7 * seed + 3 * len(arm)) % 5)
        for share, accuracy in ((0.0, 0.3), (0.5, 0.4), (1.0, 0.5 + gain + own)):
            spent = dict.fromkeys(("flops", "trained_tokens", "paper_tokens"), 1e9 * share)
            curves.append({"run": run, "share": share, "accuracy": accuracy, "diverged": False, **spent})
        solved = {"sums": 4, "words": 2}
        questions += [{"run": run, "family": name, "successes": n, "samples": 4} for name, n in solved.items()]
    for name, rows in {"runs": runs, "curves": curves, "questions": questions}.items():
        write_parquet(pd.DataFrame(rows), folder / panel / f"{name}.parquet")


def test_answers_on_the_language_model_stand_beside_those_of_the_study(tmp_path, monkeypatch):
    """Of seeds that are whole; signs on the study's base policies are the other way round."""
    monkeypatch.setattr(panels.paths, "PANELS", tmp_path)
    write(tmp_path, "answers", ["a", "b", "c"], [0, 1], {arm: -gain for arm, gain in GAIN.items()})
    with pytest.raises(NoRuns, match="make runs PANEL=language-model"):
        trained.load()
    write(tmp_path, "language-model", ["smollm2"], [0, 1, 2], without="language-model/smollm2/pods/2")
    found = trained.compare("grpo", STATISTICS)
    assert sorted(found.runs["seed"].unique()) == [0, 1]
    there, here = (table.set_index(["measure", "arm"]) for table in (found.answers, found.here))
    assert there.loc["at_1"].index.to_list() == ["d3s", "pods", "random-quarter"]
    assert there.loc["at_1", "answer"].to_list() == ["lower", "higher", "equal"]
    assert here.loc["at_1", "answer"].to_list() == ["higher", "lower", "equal"]
    # from half the budget on the gain grows in five tenths: a mean of 0.3 of it over ten
    area = there.loc[("area", "pods"), "difference"]
    assert area == pytest.approx(0.3 * there.loc[("at_1", "pods"), "difference"])
    assert there.loc[("at_1", "pods"), "each"] == pytest.approx([0.098 + 0.002, 0.1], abs=0.005)
    by_family = trained.by_family(found.runs, ["pods"]).groupby("family")["accuracy"].mean()
    assert by_family.to_dict() == {"sums": 1.0, "words": 0.5}


def test_small_batches_are_compared_as_an_arm_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(panels.paths, "PANELS", tmp_path)
    write(tmp_path, "language-model", ["smollm2"], [0, 1])
    write(tmp_path, "language-model-batches", ["smollm2"], [0, 1, 2], {"grpo": 0.04})
    runs = trained.with_small_batches(trained.load())
    assert runs.groupby("arm").size()[trained.SMALL] == 2  # of seeds that the other panel has
    found = trained.differences(runs, [(trained.SMALL, "grpo"), ("pods", trained.SMALL)], STATISTICS)
    assert found["measure"].to_list() == ["at_1", "area"] * 2
    assert found["difference"].to_list() == pytest.approx([0.04, 0.012, 0.06, 0.018], abs=0.003)


def test_one_whole_seed_has_no_interval(tmp_path, monkeypatch):
    monkeypatch.setattr(panels.paths, "PANELS", tmp_path)
    write(tmp_path, "language-model", ["smollm2"], [0, 1], without="language-model/smollm2/pods/1")
    with pytest.raises(NoRuns, match="whole for one seed alone"):
        trained.load()
