"""The sources of stage validity: the papers' tables as printed, which pairs are compared, and what is said of them."""

import numpy as np
import pandas as pd
import pytest

from repro.experiments import validity
from repro.experiments.validity import BENCH, MODEL, PAPER, Panels, Source
from repro.settings import Statistics

STATISTICS = Statistics(resamples=100, seed=0, confidence=0.95, levels=[0.9])


def source(name: str, kind: str, price: float | None, seed: int, noise: float = 0.001) -> Source:
    rng, arms = np.random.default_rng(seed), ["grpo", *(f"arm-{place}" for place in range(9))]
    rows = [
        (policy, arm, seed, 0.01 * place + rng.normal(0, noise)) for policy in "ab" for place, arm in enumerate(arms)
    ]
    return Source(name, kind, price, pd.DataFrame(rows, columns=["policy", "arm", "seed", "accuracy"]))


def test_the_papers_tables_are_sources_by_model_with_benchmarks_as_units(monkeypatch):
    monkeypatch.setattr(validity, "SOURCES", (Panels("not made", BENCH, ("no-such-panel",)),))
    found = {of.name: of for of in validity.sources("grpo")}
    assert set(found) == set(validity.PAPERS.values())  # the 4B and 8B models have two of our arms
    qwen = found["D³S, Qwen 7B"].differences("accuracy", "grpo")
    assert qwen.shape == (8, 7) and qwen.at["d3s", "aime24"] == pytest.approx(0.203 - 0.132)
    own = found["Cost-Aware, Qwen 1.5B"].differences("accuracy", "grpo").loc["cispo"].to_dict()
    assert own == pytest.approx({"aime-1983-2024": -0.041, "amc23": -0.023, "gsm8k": -0.003, "math500": -0.002})
    openmath = found["D³S, OpenMath 8B"]
    assert ["pods" in openmath.differences(of, "grpo").index for of in ("pass@16", "accuracy")] == [True, False]


def test_pairs_share_no_runs_and_no_two_prices():
    first, dear = source("first", BENCH, 0.27, 0), source("first", BENCH, 0.75, 0)
    again, model = source("again", BENCH, 0.27, 1), source("model", MODEL, None, 2)
    paper = source("paper", PAPER, None, 0)
    made = validity.pairs([first, dear, again, model, paper], "grpo")
    assert [(of.first.name, of.first.price, of.second.name) for of in made] == [
        *(("first", 0.27, name) for name in ("again", "model", "paper")),
        *(("first", 0.75, name) for name in ("model", "paper")),  # whose seeds are the first's, at another price
        *(("again", 0.27, name) for name in ("model", "paper")),
        ("model", None, "paper"),
    ]
    some = validity.pairs([first, model], "grpo", of_arms=["arm-1", "arm-2", "arm-3", "arm-4", "elsewhere"])
    assert [of.x.index.to_list() for of in some] == [["arm-1", "arm-2", "arm-3", "arm-4"]]
    assert not list(validity.pairs([first, model], "grpo", least=10))


def test_an_answer_is_by_the_adjusted_p():
    first, again = source("first", BENCH, 0.27, 0), source("again", BENCH, 0.27, 1)
    reverse = Source("reverse", MODEL, None, again.runs.assign(seed=2, accuracy=-again.runs["accuracy"]))
    told = validity.compared(validity.pairs([first, again, reverse], "grpo"), STATISTICS).set_index("second")
    assert told.loc["again", ["arms", "rho", "answer", "price"]].to_list() == [9, 1.0, "agree", 0.27]
    assert told.loc["reverse", "answer"].to_list() == ["oppose", "oppose"]
    assert (told["adjusted"] >= told["p"]).all()
    [line] = validity.calibrated(validity.pairs([first, again], "grpo"), 0.95).groupby("second")
    assert line[1]["arm"].to_list() == [f"arm-{place}" for place in range(9)]
    assert (line[1]["predicted"] - line[1]["measured"]).abs().max() < 0.01


def test_a_source_is_read_where_the_baselines_steps_are_paid():
    curves = pd.DataFrame({"run": list("aaabbb"), "step": [0, 10, 20] * 2, "share": [0, 0.5, 1.0, 0, 0.3, 1.0]})
    assert [validity._share(curves, steps) for steps in (5, 12)] == pytest.approx([0.20, 0.52])
