"""The front door: an arm of a cell against GRPO and ZVF, scores of your own, the runs in git; and what it imports."""

import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from test_store_panels import trained_here

from repro import compare, load
from repro import settings as settings_module
from repro.engine.progress import Step
from repro.errors import Refused
from repro.plots import live
from repro.plots.live import LiveCurves, in_a_cell
from repro.plots.style import COLORS
from repro.runs import golden, make
from repro.stats.runs import last_of

READ = """
import sys, repro
assert {"compare", "load", "train"} <= set(dir(repro)) and not {"torch", "pandas"} & set(sys.modules)
from repro import compare, load
assert callable(compare) and load().loc["confirm-27"].tolist() == [272, 17, 8, 2] and "torch" not in sys.modules
"""


@pytest.fixture
def small(monkeypatch):
    """Two steps of scale `smoke`, in this process."""
    whole = settings_module.load

    def load(scale, seeds):
        settings = whole(scale=scale, seeds=seeds)
        return settings.model_copy(update={"engine": settings.engine.model_copy(update={"steps": 2, "workers": 1})})

    monkeypatch.setattr(settings_module, "load", load)
    monkeypatch.setattr(make, "train_runs", trained_here)
    return {"scale": "smoke", "seeds": [0, 1], "say": lambda line: None}


def all_of_it(rollouts, progress, rng):
    return rollouts.take(np.arange(len(rollouts)))


def none_of_it(rollouts, progress, rng):
    return rollouts.take(np.arange(0))


@pytest.mark.slow
def test_a_sampler_of_a_cell_is_trained_and_compared(small):
    """One that keeps everything is GRPO, to the bit; one that keeps nothing is the base policy, and costs less."""
    same = compare(all_of_it, **small)
    assert same.answer == (
        "Not shown: All of it against GRPO is inconclusive, +0.000 [+0.000, +0.000] in accuracy over 2 seeds "
        "(adjusted p 1), for 1.00 of its trained tokens and 1.00 of its FLOPs."
    )
    assert same.table.index.tolist() == ["GRPO", "ZVF", "All of it"]
    means = last_of(same.tables["evaluations"]).groupby("arm")["accuracy"].mean()
    assert same.table["accuracy"].tolist() == means[["grpo", "zvf", "mine"]].tolist()
    assert same.table.loc["ZVF", "difference"] == pytest.approx(means["zvf"] - means["grpo"])
    assert same.tables.ends.loc["ZVF", ["seeds", "accuracy"]].tolist() == [2, means["zvf"]]
    ends = f"{means['zvf']:.3f}".rstrip("0")
    assert "<p>Tables: steps (" in same.tables._repr_html_() and f"<td>{ends}" in same.tables._repr_html_()
    shown = same._repr_html_()
    assert shown.startswith(f"<p>{same.answer}</p><img ") and "<th>All of it</th>" in shown
    assert 'alt="' in shown and "What does All of it reach, for which cost?" in shown
    none = compare({"title": "None", "samplers": [none_of_it]}, **small)
    assert none.answer.endswith("It made no update: no rollout with an advantage was left, so this is the base policy.")
    assert none.table.loc["None", "trained_tokens"] == 0 < none.table.loc["None", "flops"] < 1
    by_name = compare("zvf", **small)
    assert by_name.table.index.tolist() == ["GRPO", "ZVF"] and "ZVF against GRPO is" in by_name.answer


def test_own_scores_are_compared_over_policies_and_seeds():
    """Paired: what policy and seed add to every arm does not count. One arm is higher, one only differs by noise."""
    rng = np.random.default_rng(0)
    rows = []
    for policy in "abcd":
        for seed in range(3):
            shared = rng.normal(0, 0.2)
            for arm, gain in (("grpo", 0.0), ("better", 0.1), ("same", 0.0)):
                score = 0.5 + shared + gain + rng.normal(0, 0.01) * (arm != "grpo")
                rows.append({"arm": arm, "seed": seed, "policy": policy, "score": score})
    found = compare(pd.DataFrame(rows), "grpo").set_index("arm")
    wide = pd.DataFrame(rows).pivot_table(index=["policy", "seed"], columns="arm", values="score")
    assert found["difference"].tolist() == pytest.approx([(wide[arm] - wide["grpo"]).mean() for arm in found.index])
    assert found["answer"].to_dict() == {"better": "higher", "same": "inconclusive"}
    assert found.loc["better", "difference_low"] < 0.1 < found.loc["better", "difference_high"]
    with pytest.raises(Refused, match="two seeds"):
        compare(pd.DataFrame(rows[:3]), "grpo")
    with pytest.raises(Refused, match="'mine'"):
        compare(pd.DataFrame(rows), "mine")


def test_runs_in_git_are_read_by_panel_and_table():
    curves, stored = load("gates", "curves"), pd.read_parquet(ROOT / "runs/panels/gates/curves.parquet")
    assert len(curves) == len(stored) and {"policy", "arm", "seed", "accuracy"} <= set(curves)
    runs = load("gates").set_index("run")
    assert (curves["arm"] == curves["run"].map(runs["arm"])).all()
    with pytest.raises(Refused, match=r"no panel 'gate' in runs/design\.yaml; did you mean 'gates'"):
        load("gate")


def test_the_door_is_open_without_torch():
    subprocess.run([sys.executable, "-c", READ], cwd=ROOT, check=True, timeout=120)


def test_a_cell_shows_curves_and_the_last_line(monkeypatch):
    """Which are drawn at the first event and the last, and now and then in between."""
    shown = []
    handle = SimpleNamespace(update=shown.append)
    monkeypatch.setattr("IPython.display.display", lambda said, display_id: shown.append(said) or handle)
    monkeypatch.setattr(live, "EVERY", 60.0)
    curves = LiveCurves({"grpo": "GRPO", "mine": "Mine"})
    for arm, seed, step in (("grpo", 0, 0), ("grpo", 1, 0), ("grpo", 0, 3), ("mine", 0, 0)):
        curves(Step(arm, seed, step, 12, accuracy=0.3 + step / 10, left=0.0 if arm == "mine" else 9.0))
    assert ["seed" in said.data and "<img" in said.data for said in shown] == [True] * 3  # shown, and updated twice
    assert "mine  seed 0  step   0/12" in shown[2].data
    lines = curves.figure().axes[0].lines
    assert [line.get_label() for line in lines] == ["GRPO", "GRPO", "Mine"]
    names = [text.get_text() for text in curves.figure().axes[0].get_legend().get_texts()]
    assert names == ["GRPO", "Mine"]
    assert [line.get_color() for line in lines] == [COLORS[0], COLORS[0], COLORS[1]]
    assert list(lines[0].get_ydata()) == pytest.approx([0.3, 0.6])
    monkeypatch.setenv("JPY_SESSION_NAME", "a.ipynb")
    assert not in_a_cell()  # no kernel


def test_trying_an_arm_out_is_said_once_it_takes_long(monkeypatch):
    monkeypatch.setattr(golden, "SLOW", 0.2)
    said = []
    with golden._impatient(said.append, "quick"):
        pass
    with golden._impatient(said.append, "endless"):
        time.sleep(1.0)
    assert [line.split(":")[0] for line in said] == ["trying out endless"]
