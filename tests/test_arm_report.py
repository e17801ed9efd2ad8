"""An arm's report: its parts as read from the methods, and which rollouts trained."""

from typing import get_args

import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup

from repro import settings as settings_module
from repro.experiments.arm.method import distinctive, formulas, parts
from repro.experiments.arm.selection import share_kept, shares_by, success_class, trained_and_left
from repro.methods.objectives.aggregate import Aggregation
from repro.paths import ROOT
from repro.report.markdown import markdown_to_html
from repro.report.mathml import to_mathml

SETTINGS = settings_module.load()
STATISTICS = SETTINGS.statistics.model_copy(update={"resamples": 500})
BASE = SETTINGS.baseline

BATCH = pd.DataFrame(
    {
        "seed": 0,
        "step": [0] * 4 + [8] * 4,
        "query": [0, 0, 1, 1] * 2,
        "family": ["x", "x", "y", "y"] * 2,
        "reward": [1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0],
        "advantage": [1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 1.0, -1.0],
        "cost": [10] * 8,
        "response_tokens": [5, 5, 9, 9, 9, 9, 5, 3],
        "times_trained": [1, 1, 0, 0, 0, 0, 3, 1],
        "weight": [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.5, 2.0],
    }
)


def with_times(case: str) -> pd.DataFrame:
    kept = {"all": 1, "none": 0}
    return BATCH.assign(times_trained=kept[case], weight=float(kept[case]))


def test_shares_count_repeats_and_classes_are_those_of_the_group():
    classes = success_class(BATCH)
    assert classes.tolist() == ["half or more right"] * 2 + ["all right"] * 2 + ["all wrong"] * 2 + classes.tolist()[:2]
    two = pd.concat([BATCH, BATCH.assign(seed=1, family="x")])
    table = shares_by(two, two["family"]).set_index(["seed", "key"])
    assert table.loc[(0, "y")].to_dict() == {"batch": 0.5, "trained": pytest.approx(4 / 6), "used": 0.5}
    assert table.loc[(1, "y"), ["batch", "trained"]].tolist() == [0.0, 0.0] and np.isnan(table.loc[(1, "y"), "used"])


def test_means_of_what_trained_count_repeats():
    table = trained_and_left(BATCH)
    assert table.loc["trained", ["rollouts", "tokens", "|A|"]].tolist() == [0.5, 0.5, 1.0]
    assert table.loc["trained", "response_tokens"] == pytest.approx((5 + 5 + 3 * 5 + 3) / 6)
    assert table.loc["trained", ["most_times", "least_weight", "most_weight"]].tolist() == [3, 0.5, 2.0]
    assert table.loc["left", ["rollouts", "|A|", "response_tokens"]].tolist() == [0.5, 0.0, 9.0]


@pytest.mark.parametrize("case", ["all", "none"])
def test_means_where_there_is_no_rollout_are_unknown(case):
    table = trained_and_left(with_times(case))
    full, empty = {"all": ("trained", "left"), "none": ("left", "trained")}[case]
    assert table.loc[full, ["rollouts", "tokens", "|A|"]].tolist() == [1.0, 1.0, 0.5]
    assert table.loc[empty, ["rollouts", "tokens"]].tolist() == [0.0, 0.0] and np.isnan(table.loc[empty, "|A|"])


def test_the_filter_s_share_counts_what_was_generated_for_the_logged_steps():
    """Steps 0 and 8 are logged; 8 rollouts came before the first, 10 are generated for it and 6 for step 8."""
    steps = pd.DataFrame({"seed": 0, "step": [8, 0, 4], "rollouts": [30, 18, 24]})
    assert share_kept(BATCH, steps, pd.Series({0: 8})) == 8 / 16


@pytest.mark.parametrize("name", SETTINGS.arms)
def test_the_parts_of_an_arm_are_those_of_params_yaml(name):
    own = parts(name, SETTINGS)
    assert [part.name for part in own] == [*(call for _, call, _ in SETTINGS.arms[name].calls), own[-1].name]
    assert own[-1].name == SETTINGS.arms[name].aggregation
    for part, (_, _, given) in zip(own, SETTINGS.arms[name].calls, strict=False):
        assert given.items() <= part.parameters.items()
        assert (ROOT / part.file).stem == part.name
    for part in own:
        assert part.summary and "ValueError" not in part.markdown and "NoSignal" not in part.markdown
        assert (ROOT / part.file).is_file()


def test_an_arm_opens_with_what_sets_it_apart():
    [sampler] = distinctive("cost-aware", SETTINGS)
    assert sampler.kind == "Sampler" and sampler.equation.startswith("p_i = (|A_i| / √c_i) / Σ_j")
    assert sampler.deviations.startswith("none known at the defaults")
    assert "beta = 0.0" in sampler.markdown
    assert [part.kind for part in distinctive("dr-grpo", SETTINGS)] == ["Advantage", "Aggregation"]
    assert [part.name for part in distinctive("zvf-cost-aware", SETTINGS)] == ["zero_variance", "cost_aware"]
    for name in (BASE, "grpo-again"):
        assert [part.kind for part in distinctive(name, SETTINGS)] == ["Advantage", "Objective", "Aggregation"]


def test_formulas_are_those_of_the_section_that_links_to_the_module():
    page = """# Methods
$$no$$
## Samplers
### Draws
$$w_i$$ for [all](../src/repro/methods/draws.py).
#### First
$$p_i
= 1$$ and $$q$$. [first.py](../src/repro/methods/first.py)
#### Second
In words. [second.py](../src/repro/methods/second.py)
### Subsets
$$S$$ [subset.py](../src/repro/methods/subset.py)
"""
    found = {name: formulas(page, f"src/repro/methods/{name}.py") for name in ("first", "second", "subset", "other")}
    assert found == {"first": ("p_i\n= 1", "q", "w_i", "no"), "second": (), "subset": ("S", "no"), "other": ()}


def test_an_arm_s_formulas_are_mathematics_where_the_docs_have_them():
    by_name = {part.name: part for name in SETTINGS.all_arms for part in parts(name, SETTINGS)}
    drawn = markdown_to_html(by_name["cost_aware"].markdown, authored=False)
    own, family = [math["alttext"] for math in BeautifulSoup(drawn, "html.parser").find_all("math", display="block")]
    assert own.startswith(r"p_i = \frac{\lvert A_i\rvert / \sqrt{c_i}}") and family.startswith(
        r"p^\beta = (1 - \beta) p"
    )
    assert "Algorithm 2; eq. 5" in drawn and "<pre" not in drawn and "$" not in BeautifulSoup(drawn, "html.parser").text
    assert f"```text\n{by_name['length_only'].equation}\n```" in by_name["length_only"].markdown  # no display there
    for part in by_name.values():
        for tex in part.formulas:
            assert to_mathml(tex, display=True)
    assert {"grpo", "gspo", "cispo", "pods", "d3s", "sgpo"} <= {name for name, part in by_name.items() if part.formulas}


@pytest.mark.parametrize("aggregation", get_args(Aggregation))
def test_every_aggregation_is_explained(aggregation):
    arm = SETTINGS.arms[BASE].model_copy(update={"aggregation": aggregation})
    own = SETTINGS.model_copy(update={"arms": {**SETTINGS.arms, BASE: arm}})
    starts = "sequence-mean times" if aggregation == "group-mean" else "1/("
    assert parts(BASE, own)[-1].summary.startswith(f"Coefficient of a token's loss: {starts}")
