"""Significance, its correction, pass@k, rliable's aggregates, the noise floor: hand-computed cases and brute force."""

import json
import warnings
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from test_study import answers, curve, study

from repro.experiments.results import save as saving
from repro.experiments.results import tables
from repro.experiments.results.noise_floor import late_rise, noise_floor
from repro.settings import Statistics
from repro.stats import runs
from repro.stats.cost_ratios import cost_ratios
from repro.stats.efficiency import summarise
from repro.stats.intervals import (
    draws,
    improvement,
    interquartile_means,
    leave_one_out,
    percentiles,
    ratio_interval,
    t_intervals,
)
from repro.stats.multiplicity import holm, paired_p_values, significance
from repro.stats.pass_at_k import pass_at_k, run_means
from repro.stats.saturation import curve as saturating


@pytest.mark.parametrize("k", [1, 2, 5, 7])
def test_pass_at_k_is_the_share_of_subsets_with_a_success(k):
    for successes in range(8):
        right = [True] * successes + [False] * (7 - successes)
        share = np.mean([any(subset) for subset in combinations(right, k)])
        assert pass_at_k(successes, 7, k) == pytest.approx(share, abs=1e-15)


def test_pass_at_k_takes_arrays_and_is_unbiased():
    assert pass_at_k(np.array([[0, 1], [31, 32]]), 32, 16).tolist() == [[0.0, 0.5], [1.0, 1.0]]
    assert pass_at_k(np.array([1, 1]), np.array([2, 4]), 1).tolist() == [0.5, 0.25]
    p, n, k = 0.3, 10, 4  # its mean over binomial successes is the pass@k of the true rate
    chances = stats.binom.pmf(np.arange(n + 1), n, p)
    assert chances @ pass_at_k(np.arange(n + 1), n, k) == pytest.approx(1 - (1 - p) ** k)


def test_pass_at_k_refuses_what_it_cannot_know():
    with pytest.raises(ValueError, match="k = 16 with 8 samples; k must be from 1 to the number of samples"):
        pass_at_k(np.array([1]), 8, 16)
    with pytest.raises(ValueError, match="more successes than samples"):
        pass_at_k(np.array([9]), 8, 1)
    two = answers(curve("base", 0, [0, 1], [0, 1]), samples=8)
    assert run_means(two, ["base"], [0], 8).tolist() == [[0.5]] and np.isnan(run_means(two, ["base"], [0], 16)).all()
    with pytest.raises(ValueError, match="arm with seed 0 lacks questions"):
        run_means(two, ["base", "arm"], [0], 1)


def test_holm_by_hand_and_by_statsmodels():
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == [0.03, 0.06, 0.06, 0.02]
    assert holm([0.6, 0.7]).tolist() == [1.0, 1.0] and holm([]).size == 0
    p_M = np.random.default_rng(0).uniform(0, 0.1, 37)
    multipletests = pytest.importorskip("statsmodels.stats.multitest").multipletests
    assert holm(p_M) == pytest.approx(multipletests(p_M, method="holm")[1])
    with pytest.raises(ValueError, match="nan is no p-value"):
        holm([0.1, np.nan])


def test_p_values_are_scipys_paired_ones():
    rng = np.random.default_rng(1)
    base_S, arms_A_S = rng.normal(size=5), rng.normal(size=(3, 5))
    expected = [stats.ttest_rel(arm_S, base_S).pvalue for arm_S in arms_A_S]
    assert paired_p_values(arms_A_S - base_S) == pytest.approx(expected)
    # By hand: mean 2, standard deviation 1, three pairs: t = 2√3, and F for t with 2 degrees of freedom is closed.
    t = 2 * np.sqrt(3)
    assert paired_p_values([[1, 2, 3]])[0] == pytest.approx(1 - t / np.sqrt(2 + t**2))
    assert paired_p_values(np.array([[0, 0], [0.5, 0.5]])).tolist() == [1.0, 0.0]
    assert np.isnan(paired_p_values([[0.3]])).all()


def test_a_difference_is_resolved_only_after_the_correction_and_only_in_a_whole_family():
    differences_A_S = np.array([[0] * 5, [0.10, 0.11, 0.12, 0.09, 0.10], [-0.01, -0.03, -0.04, -0.01, -0.02], [0] * 5])
    arms = ["base", "up", "down", "same"]
    columns = significance(differences_A_S, arms, "base", arms[1:], 0.95)
    assert columns["resolved"] == ["baseline", "more", "less", "not resolved"]
    assert columns["p_holm"][1:3] == pytest.approx([3 * columns["p_value"][1], 2 * columns["p_value"][2]])
    assert 0.01 < columns["p_value"][2] < 0.025 < columns["p_holm"][2] < 0.05
    strict = significance(differences_A_S, arms, "base", arms[1:], 0.99)
    assert strict["resolved"][2] == "not resolved"
    partial = significance(differences_A_S[:2], arms[:2], "base", arms[1:], 0.95)
    assert partial["resolved"] == ["baseline", "not tested"] and np.isnan(partial["p_holm"]).all()
    assert partial["p_value"][1] == columns["p_value"][1]
    two_A_S = np.array([[0, 0], [0.10, 0.1001], [-0.01, -0.03], [0, 0]])
    two = significance(two_A_S, arms, "base", arms[1:], 0.95)
    assert two["resolved"][1:] == ["not resolved"] * 3 and two["p_holm"][1] < 0.05


def test_iqm_and_improvement_are_rliables():
    from rliable import metrics

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        rng = np.random.default_rng(2)
        final_A_S = np.round(rng.normal(0.6, 0.05, (4, 5)), 2)  # rounded: ties
        final_A_S[1] = final_A_S[0]
        iqm_A, improvement_A = interquartile_means(final_A_S, 0.95)[0], improvement(final_A_S, final_A_S[0])
        for arm in range(4):
            assert iqm_A[arm] == pytest.approx(metrics.aggregate_iqm(final_A_S[arm, :, None]))
            expected = metrics.probability_of_improvement(final_A_S[arm, :, None], final_A_S[0, :, None])
            assert improvement_A[arm] == pytest.approx(expected)
    assert improvement(np.array([[1.0, 2.0, 2.0]]), np.array([0.0, 1.0, 2.0]))[0] == 6.5 / 9
    assert np.isnan(interquartile_means(final_A_S[:, :3], 0.95)).all()


def test_t_intervals_are_scipys_and_the_other_side_of_the_p_values():
    rng = np.random.default_rng(4)
    differences_A_S = rng.normal(0.5, 1, (400, 5))
    _, low_A, high_A = t_intervals(differences_A_S, 0.95)
    exact = stats.ttest_1samp(differences_A_S, 0, axis=1).confidence_interval(0.95)
    assert low_A == pytest.approx(exact.low) and high_A == pytest.approx(exact.high)
    excluded_A = (low_A > 0) | (high_A < 0)
    assert (excluded_A == (paired_p_values(differences_A_S) < 0.05)).all() and 20 < excluded_A.sum() < 200
    # By hand: mean 2, standard deviation 1, three seeds, t = 4.3027; all alike: a point.
    assert np.array(t_intervals([1, 2, 3], 0.95)) == pytest.approx([2, 2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5])
    assert [float(end) for end in t_intervals([0.1] * 5, 0.95)] == [0.1] * 3
    # Trimmed, by hand: of 1 2 3 4 9 the middle is 2 3 4, the winsorised 2 2 3 4 4 have squares 4 about 3, over 3 · 2.
    half = 4.302653 * (4 / 6) ** 0.5
    assert np.ravel(interquartile_means(np.array([[9, 1, 3, 2, 4]]), 0.95)) == pytest.approx([3, 3 - half, 3 + half])


def test_the_interval_of_a_ratio_is_a_jackknife_of_its_logarithm():
    own_S, base_S = np.array([1.0, 1.0, 1.0, 1.0, 6.0]), np.array([2.0, 2.0, 3.0, 2.0, 1.0])
    ratio_J = (leave_one_out(5) @ own_S) / (leave_one_out(5) @ base_S)
    assert ratio_J == pytest.approx([1, 9 / 8, 9 / 8, 9 / 7, 9 / 8, 4 / 9])
    pseudo_S = 5 * np.log(ratio_J[0]) - 4 * np.log(ratio_J[1:])  # Tukey's pseudo-values, and their t interval
    half = stats.sem(pseudo_S) * stats.t.ppf(0.975, 4)
    ratio, low, high = ratio_interval(ratio_J, 0.95)
    assert (ratio, low, high) == pytest.approx((1, np.exp(-half), np.exp(half)))
    assert ratio_interval(1 / ratio_J, 0.95) == pytest.approx((1 / ratio, 1 / high, 1 / low))
    assert ratio_interval(np.full(4, 0.7), 0.95) == (0.7, 0.7, 0.7)
    assert ratio_interval(np.array([0.5, 0.0, 0.7]), 0.95) == (0.5, 0.0, np.inf)  # it rests on one seed
    assert ratio_interval(np.array([0.5, np.nan, 0.7]), 0.95) == (0.5, 0.0, np.inf)
    assert np.isnan(ratio_interval(np.array([0.5]), 0.95)[1:]).all()


def test_a_bootstrap_over_many_queries_is_the_normal_interval():
    values_N = np.random.default_rng(0).normal(size=2000)
    resampled = Statistics(levels=[0.9], resamples=4000, confidence=0.95, seed=0)
    mean, low, high = percentiles(values_N[draws(len(values_N), resampled)].mean(1), len(values_N), resampled)
    half = stats.norm.ppf(0.975) * values_N.std() / len(values_N) ** 0.5
    assert mean == values_N.mean() and [mean - low, high - mean] == pytest.approx([half, half], rel=0.05)
    assert np.isnan(percentiles(np.ones(3), 1, resampled)[1:]).all()


def coverage(values_K_S, truth, intervals) -> float:
    low_K, high_K = intervals(values_K_S)
    return float(np.mean((low_K <= truth) & (truth <= high_K)))


def percentile_bootstrap(values_K_S):
    """As the study used it before: of a mean over seeds."""
    draws_B_S = np.random.default_rng(0).integers(values_K_S.shape[1], size=(400, values_K_S.shape[1]))
    return np.percentile([values_K_S[:, drawn_S].mean(1) for drawn_S in draws_B_S], [2.5, 97.5], axis=0)


def t(values_K_S):
    return t_intervals(values_K_S, 0.95)[1:]


@pytest.mark.parametrize(("n_seeds", "bootstrap"), [(5, 0.84)])
def test_how_often_intervals_of_a_mean_hold_the_truth(n_seeds, bootstrap):
    rng = np.random.default_rng(n_seeds)
    normal_K_S, skewed_K_S = rng.normal(size=(6000, n_seeds)), rng.lognormal(0, 0.75, (6000, n_seeds))
    assert coverage(normal_K_S, 0, t) == pytest.approx(0.95, abs=0.015)
    assert coverage(normal_K_S, 0, percentile_bootstrap) == pytest.approx(bootstrap, abs=0.015)
    assert coverage(skewed_K_S, np.exp(0.75**2 / 2), t) == pytest.approx(0.885, abs=0.015)


@pytest.mark.parametrize("n_seeds", [3, 10])
def test_how_often_intervals_of_ratios_hold_the_truth(n_seeds):
    """Of means of paired seeds that vary by 20%."""
    rng, held_R = np.random.default_rng(n_seeds), np.zeros(1500, bool)
    for row in range(len(held_R)):
        common_S, own_2_S = rng.normal(size=n_seeds), rng.normal(size=(2, n_seeds))
        values_2_S = np.array([[0.7], [1.0]]) * (1 + 0.2 * (0.6 * common_S + 0.8 * own_2_S))
        over_J, under_J = values_2_S @ leave_one_out(n_seeds).T
        _, low, high = ratio_interval(over_J / under_J, 0.95)
        held_R[row] = low <= 0.7 <= high
    assert held_R.mean() == pytest.approx(0.955, abs=0.015)


@pytest.mark.parametrize("n_seeds", [5])
def test_how_often_intervals_of_costs_hold_the_truth(n_seeds):
    """To 90% of the rise, of noisy curves of ten points, which are exponential: of another form than what is fitted."""
    rng, tau_2, held = np.random.default_rng(n_seeds), np.array([0.35, 0.30]), []
    costs_2_E = np.stack([np.linspace(0, 1, 11), np.linspace(0, 0.8, 11)])
    costs_2_S_E = np.repeat(costs_2_E[:, None], n_seeds, axis=1)
    curve_2_E = 0.4 + 0.2 * (1 - np.exp(-costs_2_E[0] / tau_2[:, None]))
    reached_2 = -tau_2 * np.log(1 - 0.9 * (1 - np.exp(-1 / 0.35)))
    truth = 0.8 * reached_2[1] / reached_2[0]
    for _ in range(300):
        noise_2_S_E = rng.normal(0, 0.01, (2, n_seeds, 1)) * (costs_2_E[0] > 0) + rng.normal(0, 0.008, (2, n_seeds, 11))
        cost = cost_ratios(costs_2_S_E, curve_2_E[:, None] + noise_2_S_E, 0, [0.9], 0.95)[0.9]
        held.append(cost["_low"][1] <= truth and (truth <= cost["_high"][1] or cost["_open"][1]))
    assert np.mean(held) == pytest.approx(0.95, abs=0.03)


def many_arms(n_arms, n_seeds=5, seed=0):
    """A baseline and n_arms − 1 others in two groups, one of them clearly worse, and the baseline again."""
    names = ["base", *(f"arm-{place}" for place in range(1, n_arms - 1)), "random-subset"]
    rng, frames = np.random.default_rng(seed), []
    learned = np.array([0.0, 0.1, 0.17, 0.22, 0.25, 0.27])
    for name in names:
        for run in range(n_seeds):
            noise = np.r_[0.0, rng.normal(0, 0.004, 5)]
            height = 0.4 + learned * (0.5 if name == "arm-1" else 1.0) + noise
            frames.append(curve(name, run, np.arange(6) * rng.uniform(90, 110), height))
    again = [frames[0].assign(arm="base-again")]
    again += [
        curve("base-again", run, np.arange(6) * 100.0, frames[run % n_seeds]["accuracy"] + 0.01) for run in range(5, 9)
    ]
    evaluations = pd.concat([*frames, *again], ignore_index=True)
    evaluations = evaluations.assign(greedy=evaluations["accuracy"] + 0.1, harder=evaluations["accuracy"] / 2)
    groups = {name: "Objectives" if place < 3 else "Selection" for place, name in enumerate(names)}
    groups["random-subset"] = "Controls"
    statistics = Statistics(levels=[0.9, 0.95, 1.0], resamples=5000, confidence=0.95, seed=0)
    return evaluations, study(*names, "base-again", seeds=range(n_seeds), statistics=statistics, groups=groups)


def test_all_arms_on_all_axes_say_who_is_worse(tmp_path, monkeypatch):
    evaluations, settings = many_arms(38)
    questions = answers(evaluations, samples=32)
    summary = summarise(evaluations, questions, settings)
    assert len(summary) == 38 and "base-again" not in set(summary["arm"])
    worse = summary.set_index("arm").loc["arm-1"]
    assert worse["resolved"] == "less" and worse["improvement"] == 0.0 and not worse["flops_ratio_90_reached"]
    assert (summary["pass_8"] == 0.5).all() and (summary["pass_16_difference_high"] == 0).all()

    assert summary["resolved"].value_counts().to_dict() == {"not resolved": 36, "less": 1, "baseline": 1}
    assert summary[["diverged", "collapsed"]].sum().tolist() == [0, 0]
    table = tables.accuracy_table(summary)
    assert table.loc[("Objectives", "Arm-1"), "difference from the baseline"].startswith(
        f"{worse['difference']:+.3f} ["
    )
    assert table["significant"].value_counts().to_dict() == {"no": 36, "lower": 1, "baseline": 1}
    assert worse["greedy_difference"] == pytest.approx(worse["difference"]) == 2 * worse["harder_difference"]
    assert worse["greedy_gain"] == pytest.approx(worse["gain"]) and worse["greedy_resolved"] == "less"
    assert (summary["greedy_resolved"] == summary["resolved"]).all()
    greedy = table["greedy, difference"]
    assert greedy[greedy.str.endswith(" *")].index.tolist() == [("Objectives", "Arm-1")]
    assert tables.harder_table(summary).columns.tolist() == ["temperature 1", "temperature 1, difference"]
    lines = tables.as_markdown(table).splitlines()
    groups = [line.split("|")[1].strip() for line in lines[2:]]
    assert len(groups) == 38 and [name for name in groups if name] == ["Objectives", "Selection", "Controls"]
    assert tables.front_arms(settings) == ["base", "arm-3", "random-subset"]

    for name, folder in {"TABLES": "tables", "FIGURES": "figures", "ROOT": ""}.items():
        monkeypatch.setattr(saving, name, tmp_path / folder)
    saving.save(tmp_path / "data", summary, evaluations, settings, {}, {"noise": "x"})
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    base = summary.set_index("arm").loc["base"]
    price = "generation 27% of the bill"
    assert metrics["of"] == {"budget": "64 steps", "rate": 1e-4, "measure": "temperature 1", "price": price}
    assert metrics["baseline"] == {
        name: round(base[of], 6)
        for name, of in (("final_accuracy", "accuracy"), ("gain", "gain"), ("greedy", "greedy"))
    }
    assert metrics["arms"] | {"higher": 0, "lower": 1} == metrics["arms"]
    assert pd.read_parquet(tmp_path / "data/summary.parquet").equals(summary.drop(columns=["title", "group"]))
    curves = pd.read_csv(tmp_path / "tables/curves.csv")
    assert curves.columns[:3].tolist() == ["arm", "group", "share"] and len(curves) == 38 * 11
    runs = pd.read_parquet(tmp_path / "tables/evaluations.parquet")  # in git, for whoever reads the study
    assert runs.equals(pd.read_parquet(tmp_path / "data/evaluations.parquet")) and len(runs) == len(evaluations)
    assert sorted(path.stem for path in (tmp_path / "tables").glob("*.md")) == sorted(
        [
            "accuracy",
            "best",
            "flops",
            "front",
            "harder",
            "noise",
            "paper_tokens",
            "pass",
            "profiled",
            "total_tokens",
            "trained_tokens",
        ]
    )


def test_an_arm_that_stops_early_is_not_called_cheap():
    """Its last cost is low because it trains on little; at the end of its runs it is not told from the level."""
    costs_E, rise_E = np.linspace(0, 200, 11), saturating(np.linspace(0, 200, 11), 0, 0.6, 100, 1)
    frames = [curve("base", seed, costs_E, rise_E) for seed in range(3)]
    frames += [curve("arm", seed, costs_E / 10, high * rise_E) for seed, high in enumerate([0.2, 1.2, 1.2])]
    evaluations, settings = pd.concat(frames), study("base", "arm", seeds=range(3))
    summary = summarise(evaluations, answers(evaluations), settings)
    assert summary["trained_tokens_ratio_50_high"].tolist()[1] == pytest.approx(0.4, rel=1e-4)
    shown = tables.ratio_table(summary, ["trained_tokens"], [0.5]).loc[("All", "Arm")]
    assert shown.tolist() == ["0.12 [0.03, ≥ 0.40]"] and summary["trained_tokens_ratio_50_open"].tolist()[1]


def test_one_seed_and_one_arm_are_no_reason_to_crash():
    evaluations, settings = many_arms(3, n_seeds=1)
    summary = summarise(evaluations, answers(evaluations, samples=2), settings)
    assert summary["pass_8"].isna().all() and summary["accuracy_low"].isna().all()
    assert set(summary["resolved"]) == {"baseline", "not tested"}
    assert (tables.pass_table(summary)["pass@8"] == "–").all()
    for table in (tables.ratio_table(summary, tables.AXIS_NAMES, [0.9]), tables.front_table(summary, settings)):
        assert "nan" not in tables.as_markdown(table)
    alone = evaluations[evaluations["arm"] == "base"]
    assert summarise(alone, answers(alone), settings)[["arm", "resolved"]].values.tolist() == [["base", "baseline"]]


def test_the_noise_floor_by_hand():
    evaluations, settings = many_arms(4)
    noise = noise_floor(evaluations, settings)
    row = noise.iloc[0]
    assert row["same_seeds"] == 1 and row["identical"] and row["largest"] == 0.0
    final = evaluations.groupby(["arm", "seed"])["accuracy"].last().unstack("seed")
    new = final.loc["base-again"].drop(0).dropna()
    assert row["runs"] == 9 and row["mean_difference"] == pytest.approx(new.mean() - final.loc["base", :4].mean())
    typical = np.median((final.drop(["base", "base-again"]) - final.loc["base"]).loc[:, :4].std(axis=1))
    assert row["resolvable"] == pytest.approx(stats.t.ppf(0.975, 4) * typical / np.sqrt(5))
    assert row["resolvable_holm"] == pytest.approx(stats.t.ppf(1 - 0.025 / 3, 4) * typical / np.sqrt(5))

    moved = evaluations.copy()
    moved.loc[(moved["arm"] == "base-again") & (moved["seed"] == 0) & (moved["step"] == 3), "accuracy"] += 0.25
    row = noise_floor(moved, settings).iloc[0]
    assert not row["identical"] and row["largest"] == pytest.approx(0.25)
    here = evaluations[evaluations["arm"].isin(["base", "base-again"])]  # of one machine, the table is from another
    row = noise_floor(moved, settings, here).iloc[0]
    assert row["identical"] and row["largest"] == 0.0
    without = noise_floor(evaluations[evaluations["arm"] != "base-again"], settings).iloc[0]
    assert without["same_seeds"] == without["new_seeds"] == 0 and np.isnan(without["mean_difference"])


def test_the_late_rise_by_hand():
    """Two runs whose last evaluations have the FLOPs 4 and 8: at three quarters, 3 and 6, both are on a line."""
    runs = [(0, 0, 0.1, 0.0), (0, 1, 0.3, 2.0), (0, 2, 0.5, 4.0), (1, 0, 0.2, 0.0), (1, 1, 0.4, 4.0), (1, 2, 0.4, 8.0)]
    evaluations = pd.DataFrame(runs, columns=["seed", "step", "accuracy", "flops"])
    mean, low, high = late_rise(evaluations, many_arms(1)[1].statistics)
    half = stats.t.ppf(0.975, 1) * np.std([0.1, 0.0], ddof=1) / np.sqrt(2)
    assert (mean, low, high) == pytest.approx((0.05, 0.05 - half, 0.05 + half))


def test_a_difference_of_the_resolvable_size_is_on_the_edge():
    """What the noise floor calls resolvable has p = 1 − confidence for a difference that scatters as the pooled one."""
    evaluations, settings = many_arms(2)
    row = noise_floor(evaluations, settings).iloc[0]
    final = evaluations.groupby(["arm", "seed"])["accuracy"].last().unstack("seed").loc[:, :4]
    difference = final.loc["random-subset"] - final.loc["base"]
    edge = (difference - difference.mean() + row["resolvable"]).to_numpy()
    assert paired_p_values(edge[None])[0] == pytest.approx(0.05)


def test_compared_arms_are_gathered_by_group():
    settings = study("base", "late", "again", "early", groups={"base": "A", "late": "B", "again": "A", "early": "A"})
    assert runs.compared(settings) == ["base", "early", "late"]
