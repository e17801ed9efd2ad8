"""Tables and verdicts of the regimes of Cost-Aware SGD: by hand, and from runs at their smallest."""

import json

import numpy as np
import pandas as pd
import pytest

from repro.theory import sgd as eq
from repro.theory.sgd import Measured
from repro.theory.sgd_regimes import closed_forms as theory
from repro.theory.sgd_regimes import comparisons as comparisons
from repro.theory.sgd_regimes import validation as validation
from repro.theory.sgd_regimes import verdicts as verdicts
from repro.theory.verdict import save

SMALL = dict(dimension=3, radius=1.0, drift=0.2, seed=0)


@pytest.fixture(scope="module")
def norms_and_costs():
    norms_n, regimes = theory.draw_regimes(60, 0.5, 1.0, 0.8, seed=1)
    return norms_n, regimes["none"][1]


@pytest.fixture(scope="module")
def tables(norms_and_costs):
    """Everything the notebook makes, at its smallest."""
    norms_n, regimes = theory.draw_regimes(60, 0.5, 1.0, 0.8, seed=1)
    runs = SMALL | dict(n_iterations=512, n_trials=20)
    cases = comparisons.four_cases(*norms_and_costs, SMALL)
    trials = [validation.run_study(case, validation.horizons(512, 4), 20, 0) for case in cases]
    found = [(case, validation.measure_iterates(runs, 0)) for case, runs in zip(cases, trials, strict=True)]
    return dict(
        curves=pd.concat([validation.cost_curves(*pair) for pair in found]),
        rates=pd.concat([validation.rates(*pair) for pair in found]),
        growth=pd.concat([validation.last_over_average(*pair) for pair in found]),
        regimes=comparisons.compare_regimes(norms_n, regimes, (0.5, 1.0), **runs),
        dramatic=comparisons.compare_dramatic([10, 30], **runs),
        beyond=comparisons.beyond_the_bound(cases[2], n_points=60, **runs),
        curvatures=comparisons.curvatures(cases[3].problem),
    )


def test_tables_hold_closed_forms_and_every_claim_is_judged(tables, norms_and_costs):
    regimes = tables["regimes"].set_index(["regime", "pair"])
    assert regimes.loc[("threshold", "variance / uniform"), "eq_8"] == pytest.approx(1.0)
    assert regimes.loc[("none", "uniform / optimal"), "eq_8"] == eq.uniform_cost_ratio(*norms_and_costs)
    assert regimes["eq_8"].to_numpy() == pytest.approx(regimes["lognormal"].to_numpy(), rel=0.25)
    product = regimes["eq_8"].unstack()
    quotient = product["variance / optimal"] / product["uniform / optimal"]
    assert quotient.to_numpy() == pytest.approx(product["variance / uniform"].to_numpy())
    found = verdicts.judge(*(tables[name] for name in ("rates", "growth", "regimes", "dramatic", "beyond")))
    examples = comparisons.correlation_examples(*theory.draw_scores(200, 0))
    assert list(examples["cheaper"]) == ["variance", "uniform"]
    assert examples["pearson"][0] == pytest.approx(1.0) and examples["pearson"][1] < 0.4
    found += verdicts.judge_exact(examples, tables["curvatures"])
    assert len({row["claim"] for row in found}) == len(found)
    assert all(np.isfinite([row["expected"], row["measured"], *row["interval"]]).all() for row in found)
    assert all(row["interval"][0] <= row["measured"] <= row["interval"][1] for row in found)
    text = verdicts.conclude(*(tables[name] for name in ("rates", "regimes", "dramatic", "beyond")), found)
    assert f"of {len(found)} claims hold" in text


def test_a_wrong_exponent_does_not_pass(tables):
    def holds(rates):
        found = verdicts.judge(rates, *(tables[name] for name in ("growth", "regimes", "dramatic", "beyond")))
        return {row["claim"]: row["holds"] for row in found}["non-convex, average: k of cost ∝ ε^−k is F.2's 2"]

    sharp = tables["rates"].assign(exponent_low=1.95, exponent_high=2.05, exponent=2.0)
    assert holds(sharp) and not holds(sharp.assign(exponent_high=2.25))


def test_measured_ratios_by_hand(norms_and_costs):
    # Two horizons; errors 0.2 and 0.1 (last: 0.4 and 0.3), cost 10 and 20, uniform twice as dear: 20·0.1² per ε^−2.
    shape, one = (2, 3, 2), np.array([0.2, 0.1])
    cost_B_S_M = np.array([2.0, 1.0, 1.0])[:, None] * np.array([10.0, 20.0]) * np.ones(shape)
    found = {
        "average": Measured(one * np.ones(shape), cost_B_S_M, np.array([50, 100])),
        "last": Measured(np.array([0.4, 0.3]) * np.ones(shape), cost_B_S_M, np.array([50, 100])),
    }
    assert validation.cost_at_end(found["average"], 2.0)[0] == pytest.approx([0.4, 0.2, 0.2])
    study = comparisons.four_cases(*norms_and_costs, SMALL)[0]
    growth = validation.last_over_average(study, found)
    assert growth["ratio"].to_numpy() == pytest.approx([2, 3]) and growth["growth"].to_numpy() == pytest.approx(
        [1, 1.5]
    )
    uniform = validation.rates(study, found).set_index(["iterate", "sampling"]).loc[("average", "uniform")]
    assert uniform["exponent"] == pytest.approx(1.0) and uniform["ratio"] == pytest.approx(2.0)
    limit = study.limits(eq.uniform_sampling(*norms_and_costs))["average"]
    assert uniform["level"] == pytest.approx(0.1 / (limit / 10))
    assert uniform["tightness"] == pytest.approx(max(0.2 * 50**0.5, 0.1 * 10) / limit)


def test_the_cost_of_one_sampling_over_another():
    class Constant:
        def run(self, p_n, horizon, n_trials, rng):
            return {"average": np.full(n_trials, p_n[0]), "last": np.ones(n_trials), "cost": np.full(n_trials, p_n[1])}

    settings = dict(n_trials=4, n_iterations=10, seed=0)
    ratio_B = comparisons._relative_cost(Constant(), (np.array([0.3, 0.7]), np.array([0.6, 0.4])), settings)
    assert ratio_B == pytest.approx(np.full(2001, 0.3 * 0.7 / (0.6 * 0.4)))


def test_regimes_that_do_what_the_theory_says_are_judged_so_and_others_are_not(tables):
    exact = tables["regimes"].copy()
    for end in ("", "_low", "_high"):
        exact["linear" + end], exact["squares" + end] = exact["eq_8"], exact["limit"]
    assert all(row["holds"] for row in verdicts._judge_regimes(exact))
    turned = exact["pair"] == "variance / uniform"
    for end in ("", "_low", "_high"):
        exact.loc[turned, "linear" + end] = 1 / exact["eq_8"]
    missed = [row["claim"] for row in verdicts._judge_regimes(exact) if not row["holds"]]
    assert len(missed) == 3 and all("Theorem D.1" in claim for claim in missed)


def test_the_worst_of_several_and_their_hull():
    rows = pd.DataFrame({"x": [0.9, 1.05], "x_low": [0.85, 1.0], "x_high": [0.95, 1.2]})
    assert verdicts._worst(rows, "x") == (1.05, (1.0, 1.2))
    assert verdicts._worst(rows, "x", 1.0) == (0.9, (0.85, 1.2))


def test_the_same_seed_gives_the_same_bytes(tables, norms_and_costs, tmp_path):
    again = comparisons.compare_dramatic([10, 30], **SMALL, n_iterations=512, n_trials=20)
    for folder, table in (("a", tables["dramatic"]), ("b", again)):
        save(tmp_path / folder, {"dramatic": table}, [{"claim": "x", "holds": True}])
    for name in ("dramatic.parquet", "verdict.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert json.loads((tmp_path / "a" / "verdict.json").read_text()) == [{"claim": "x", "holds": True}]
    with pytest.raises(ValueError, match="need at least 512"):
        validation.horizons(256, 4)
