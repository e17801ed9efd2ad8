"""Curves to figures: cost to reach, pairing by seed, intervals. Hand-computed cases."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from repro.experiments.results import tables
from repro.files import read_parquet, write_json, write_parquet
from repro.settings import Statistics
from repro.stats.cost_ratios import cost_ratios
from repro.stats.efficiency import summarise
from repro.stats.intervals import estimate, mean_intervals, over_seeds, resample_counts
from repro.stats.runs import at_budgets
from repro.stats.saturation import curve as saturating
from repro.stats.saturation import fit
from repro.stats.tables import ratio

STATISTICS = Statistics(levels=[0.5, 1.0], resamples=2000, confidence=0.95, seed=0)


def study(*arms, seeds=(0, 1), statistics=STATISTICS, groups=None):
    """Settings as far as the study reads them: arms by name, the first the baseline, own seeds for `…-again`."""
    entries = {
        name: SimpleNamespace(
            title=name.capitalize(),
            group=(groups or {}).get(name, "All"),
            seeds=[0] if "again" in name else None,
            profile=object() if "profiled" in name else None,
        )
        for name in arms
    }
    return SimpleNamespace(
        arms=entries,
        all_arms=entries,
        arm=entries.__getitem__,
        baseline=arms[0],
        compared_arms=[name for name in arms if entries[name].seeds is None],
        seeds=list(seeds),
        statistics=statistics,
        primaries=[arms[0]],
        fidelity=SimpleNamespace(arms=[arms[0]]),
        engine=SimpleNamespace(steps=64, learning_rate=1e-4),
        evaluation=SimpleNamespace(price=0.27),
    )


COSTS = ["trained_tokens", "paper_tokens", "generated_tokens", "flops"]


def curve(arm, seed, costs, accuracies, diverged=False):
    """One run's evaluations: it trains on `costs` tokens by either count, generates as many, takes as many FLOPs."""
    columns = {"arm": arm, "seed": seed, "step": range(len(costs)), "accuracy": accuracies, "diverged": diverged}
    columns["flops_profile"] = 0.0
    return pd.DataFrame(columns | dict.fromkeys(COSTS, costs))


def answers(evaluations, samples=4):
    """Questions of two queries a run: one always right, one never."""
    runs = evaluations[["arm", "seed"]].drop_duplicates()
    return pd.concat(
        [runs.assign(query=query, successes=right, samples=samples) for query, right in enumerate([0, samples])]
    )


def summary_of(runs, *arms, **options):
    seeds = sorted(runs["seed"].unique())
    return summarise(runs, answers(runs), study(*arms, seeds=seeds, **options)).set_index("arm")


TENTHS_E = np.linspace(
    0, 200, 11
)  # costs; a curve of half cost 100 and steepness 1 has made two thirds of its way then


def test_profiling_counts_in_every_cost_and_its_share_is_told():
    """The arm that profiles learns as the baseline does, and pays 100 before it begins."""
    runs = pd.concat(
        [
            curve(arm, seed, TENTHS_E + price, saturating(TENTHS_E, 0.2, 0.8, 100, 1)).assign(flops_profile=price)
            for arm, price in {"base": 0, "profiled": 100}.items()
            for seed in (0, 1)
        ]
    )
    settings = study("base", "profiled", groups={"profiled": "Profiles"})
    row = summary_of(runs, "base", "profiled").loc["profiled"]
    assert row["profile_share"] == pytest.approx(1 / 3) and row["compute"] == pytest.approx(1.5)
    # half of the rise from 0.2 to 0.6 costs 50, and 100 before
    assert row["flops_ratio_50"] == pytest.approx(3.0) and row["flops_ratio_100"] == pytest.approx(1.5)
    table = tables.profiled_table(summarise(runs, answers(runs), settings), settings)
    assert table.index.tolist() == ["Base", "Profiled"]
    assert table.loc["Profiled", "final accuracy"] == "0.600 [0.600, 0.600]"
    assert table.loc["Profiled", ["FLOPs in all, the baseline's = 1", "of them profiling"]].tolist() == ["1.50", "33%"]


def test_runs_evaluated_at_different_steps_are_read_off_at_the_same_tenths():
    """Accuracy and costs linear in the share of the budget come out as they are, wherever a run was evaluated."""
    shares = {0: [0.0, 0.13, 0.22, 1.04], 1: [0.0, 0.31, 0.98], 2: [0.05, 0.4]}  # the last pays 0.05 before it begins
    steps = {0: [0, 5, 9, 32], 1: [0, 11, 32], 2: [0, 13]}
    runs = pd.concat(
        [
            curve("arm", seed, 100 * np.array(share), 0.2 + 0.5 * np.array(share), seed == 2).assign(
                share=share, step=steps[seed]
            )
            for seed, share in shares.items()
        ]
    )
    found = at_budgets(runs)
    assert found["share"].tolist() == pytest.approx([*np.arange(12) / 10] * 3)
    for seed, share in shares.items():
        run, expected = found[found["seed"] == seed], np.clip(np.arange(12) / 10, share[0], share[-1])
        assert run["accuracy"].tolist() == pytest.approx(0.2 + 0.5 * expected)
        assert run["flops"].tolist() == pytest.approx(100 * expected) == run["paper_tokens"].tolist()
        assert run["step"].iloc[-1] == steps[seed][-1] and run["diverged"].unique().tolist() == [seed == 2]


def test_an_arm_that_ends_earlier_keeps_where_it_ended_and_an_unfinished_run_is_refused():
    long, short = curve("long", 0, [0, 10, 20], [0.1, 0.2, 0.3]), curve("short", 0, [0, 5], [0.1, 0.4])
    full = at_budgets(pd.concat([long, short])).set_index(["arm", "share"])  # no budget: shares of the steps
    assert full.loc[("short", 1.0), ["accuracy", "flops"]].tolist() == [0.4, 5]
    assert full.loc[("long", 0.5), ["accuracy", "step"]].tolist() == pytest.approx([0.2, 1])
    unfinished = pd.concat([long, curve("long", 1, [0, 10], [0.1, 0.2])])
    with pytest.raises(ValueError, match="long with seed 1 has no evaluation at step 2"):
        at_budgets(unfinished)


def test_the_best_checkpoint_is_an_evaluation_and_not_a_point_between():
    shares = [0.0, 0.25, 1.0]  # the peak is at no tenth
    runs = pd.concat([curve(arm, seed, [0, 25, 100], [0.1, 0.9, 0.3]) for arm in ("base", "arm") for seed in (0, 1)])
    assert (summary_of(runs.assign(share=shares * 4), "base", "arm")["best"] == 0.9).all()


def test_ratios_are_those_of_fitted_mean_curves():
    rise_E, slow_E = saturating(TENTHS_E, 0.1, 1.0, 100, 1), saturating(TENTHS_E, 0.1, 0.25, 100, 1)
    arms = {"base": (TENTHS_E, rise_E), "arm": (TENTHS_E / 2, rise_E), "slow": (TENTHS_E, slow_E)}
    runs = pd.concat(
        [
            curve(arm, seed, costs_E, mean_E + off_E)
            for arm, (costs_E, mean_E) in arms.items()
            for seed, off_E in enumerate([TENTHS_E / 10000, -TENTHS_E / 10000])
        ]
    )
    # mean curve of base: from 0.1 to 0.7; half of its rise costs 50, and is never reached by the slow one
    summary = summary_of(runs, "base", "arm", "slow")
    arm, slow = summary.loc["arm"], summary.loc["slow"]
    for axis in ("trained_tokens", "paper_tokens", "total_tokens", "flops"):
        assert arm[[f"{axis}_ratio_50", f"{axis}_ratio_50_low"]].tolist() == pytest.approx([0.5, 0.5], rel=1e-4)
        assert arm[f"{axis}_ratio_50_reached"] and not arm[f"{axis}_ratio_50_open"]
        assert slow[f"{axis}_ratio_50"] == pytest.approx(4.0, rel=1e-4) and not slow[f"{axis}_ratio_50_reached"]
    assert (summary.loc["base", ["flops_ratio_50", "flops_ratio_100_high"]] == 1.0).all()
    assert (arm["tokens"], slow["generated"]) == (0.5, 1.0)
    assert slow["difference"] == pytest.approx(-0.5) == slow["best_difference"]
    assert summary.loc["base", "gain"] == pytest.approx(0.6)
    shown = summary.reset_index()
    assert tables.accuracy_table(shown).loc[("All", "Slow"), "final accuracy"].startswith("0.200 [")
    assert tables.ratio_table(shown, ["trained_tokens"], [0.5]).loc[("All", "Slow")].tolist() == ["≥ 4.00"]
    assert tables.totals_table(shown).loc[("All", "Slow"), "tokens generated, in all"].startswith("1.00")


def test_an_arm_equal_to_the_baseline_has_an_interval_around_one():
    rng = np.random.default_rng(0)
    accuracies_A_S_E = 0.6 - 0.4 * np.exp(-np.arange(7) / 2) + rng.normal(0, 0.01, (2, 10, 7))
    costs_A_S_E = np.broadcast_to(np.arange(7.0), (2, 10, 7))
    ratios = cost_ratios(costs_A_S_E, accuracies_A_S_E, 0, [0.9], 0.95)[0.9]
    assert ratios["_low"][1] < 1 < ratios["_high"][1] and ratios["_reached"] == [True, True]


def test_the_interval_of_a_cost_leaves_each_seed_out_of_arm_and_baseline():
    rng = np.random.default_rng(1)
    curve_A_E = np.stack([saturating(TENTHS_E, 0.2, 0.6, half, 1.2) for half in (100, 70)])
    accuracies_A_S_E = curve_A_E[:, None] + rng.normal(0, 0.005, (2, 5, 11))
    costs_A_S_E = rng.uniform(0.9, 1.1, (2, 5, 1)) * TENTHS_E
    found = cost_ratios(costs_A_S_E, accuracies_A_S_E, 0, [0.8], 0.95)[0.8]
    fits_J = []
    for kept in ([0, 1, 2, 3, 4], *(np.delete(np.arange(5), seed) for seed in range(5))):
        means = zip(costs_A_S_E[:, kept].mean(1), accuracies_A_S_E[:, kept].mean(1), strict=True)
        fits_J.append([(fit(costs_E, mean_E), costs_E[-1]) for costs_E, mean_E in means])

    def above(ratio):
        """The arm's curve less the level and Student's half width, by definition; Fieller's ends are its zeros."""
        gaps_J = []
        for (base, spent), (own, _) in fits_J:
            level = base.start + 0.8 * (base(spent) - base.start)
            gaps_J.append(own(ratio * base.cost_of(level)) - level)
        return gaps_J[0], t.ppf(0.975, 4) * np.sqrt(4 / 5 * np.square(gaps_J[1:] - np.mean(gaps_J[1:])).sum())

    (at, _), (below, half), (beyond, wide) = (above(found[end][1]) for end in ("", "_low", "_high"))
    assert (at, below + half, beyond - wide) == pytest.approx((0, 0, 0), abs=1e-4)
    assert found["_low"][1] < 0.7 < found["_high"][1] and not found["_open"][1]


def test_the_baseline_costs_as_much_as_itself_however_it_scatters():
    rng = np.random.default_rng(3)
    accuracies_A_S_E = saturating(TENTHS_E, 0.2, 0.6, 100, 1.2) + rng.normal(0, 0.03, (2, 3, 11)) * (TENTHS_E > 0)
    costs_A_S_E = np.broadcast_to(TENTHS_E, (2, 3, 11))
    for ratios in cost_ratios(costs_A_S_E, accuracies_A_S_E, 0, [0.9, 0.95, 1.0], 0.95).values():
        assert [ends[0] for ends in ratios.values()] == [1.0, 1.0, 1.0, True, False]
        assert ratios["_low"][1] <= ratios[""][1] <= ratios["_high"][1]


def test_an_arm_that_falls_from_above_the_level_does_not_cost_nothing():
    rise_E = saturating(TENTHS_E, 0.2, 0.6, 100, 1)
    accuracies_A_S_E = np.stack([[rise_E] * 3, [0.7 - rise_E] * 3])  # from 0.5 down to 0.23; the level is 0.44
    found = cost_ratios(np.broadcast_to(TENTHS_E, (2, 3, 11)), accuracies_A_S_E, 0, [0.9], 0.95)[0.9]
    assert not found["_reached"][1] and found["_open"][1] and found[""][1] > 1


def test_an_upper_end_that_lies_past_the_end_of_training_is_marked_open():
    rise_E = saturating(TENTHS_E, 0, 0.6, 100, 1)  # to 0.4; half of it costs 50
    runs = [curve("base", seed, TENTHS_E, rise_E) for seed in range(3)]
    runs += [curve("arm", seed, TENTHS_E, high * rise_E) for seed, high in enumerate([0.2, 1.2, 1.2])]
    row = summary_of(pd.concat(runs), "base", "arm").loc["arm"]
    # mean asymptote 0.52: there at 62.5; the interval reaches past the 200 that it spent
    assert row["flops_ratio_50"] == pytest.approx(62.5 / 50, rel=1e-4) and row["flops_ratio_50_reached"]
    assert row["flops_ratio_50_open"] and row["flops_ratio_50_high"] == pytest.approx(4.0, rel=1e-4)
    # without one of the last two seeds 0.7 times as high as the baseline, without the first 1.2: ± half of its height
    half = t.ppf(0.975, 2) * np.sqrt(2 / 3 * np.square(np.array([1.2, 0.7, 0.7]) - 2.6 / 3).sum())
    height = 0.2 / (2.6 / 3 + half)  # of the baseline's curve where the upper end is at the level
    low = 100 * height / (0.6 - height) / 50
    assert row["flops_ratio_50_low"] == pytest.approx(low, rel=1e-3)
    assert ratio(row, "flops_ratio_50") == f"1.25 [{low:.2f}, ≥ 4.00]"


def test_a_baseline_that_never_rose_leaves_the_ratio_undefined():
    runs = pd.concat([curve("base", 0, [0, 10], [0.5, 0.4]), curve("arm", 0, [0, 10], [0.5, 0.6])])
    summary = summary_of(runs, "base", "arm").reset_index()
    assert summary["trained_tokens_ratio_50"].isna().all()
    undefined = tables.ratio_table(summary, ["trained_tokens"], [0.5])
    assert set(undefined["trained tokens (computed) to 50% of the rise"]) == {"undefined: the baseline did not rise"}
    # also where its first cost is above 0, a profile's, say: there is no level, and so no cost to reach it
    falls_2_S_E = np.array([[[0.5, 0.4]] * 5, [[0.5, 0.6]] * 5])
    ratios = cost_ratios(np.full((2, 5, 2), 10.0), falls_2_S_E, 0, [0.5], 0.95)[0.5]
    assert np.isnan([ratios[end] for end in ("", "_low", "_high")]).all()


def test_unpaired_seeds_are_refused():
    alone = curve("arm", 3, [0, 1], [0, 1])
    with pytest.raises(ValueError, match="no run of the baseline 'base'"):
        summarise(alone, answers(alone), study("base", "arm"))
    unpaired = pd.concat([curve("base", 0, [0, 1], [0, 1]), alone])
    with pytest.raises(ValueError, match=r"arm has seeds \[3\], base has \[0\]"):
        summarise(unpaired, answers(unpaired), study("base", "arm"))


def test_a_diverged_run_stays_in_every_mean_and_an_unfinished_one_is_refused():
    whole = [curve(arm, seed, [0, 10, 20], [0.4, 0.5, 0.6]) for arm in ("base", "arm") for seed in (0, 1)]
    broken = curve("arm", 1, [0, 10], [0.4, 0.1], diverged=[False, True])
    summary = summary_of(pd.concat([*whole[:3], broken]), "base", "arm")
    assert summary[["diverged", "collapsed"]].values.tolist() == [[0, 0], [1, 1]]
    assert summary.loc["arm", "accuracy"] == pytest.approx((0.6 + 0.1) / 2) and summary.loc["arm", "tokens"] == 0.75
    shown = tables.accuracy_table(summary.reset_index()).loc[("All", "Arm"), "significant"]
    assert shown == "no; 1 of 2 diverged; 1 of 2 collapsed"
    unfinished = pd.concat([*whole[:3], broken.assign(diverged=False)])
    with pytest.raises(ValueError, match="arm with seed 1 has no evaluation at step 2"):
        summary_of(unfinished, "base", "arm")


def test_intervals_repeat_and_admit_what_they_do_not_know():
    values = {"a": np.array([0.1, 0.2, 0.4]), "one": np.array([0.3]), "nan": np.array([0.1, np.nan])}
    found = mean_intervals(values, STATISTICS)
    half = t.ppf(0.975, 2) * np.std(values["a"], ddof=1) / np.sqrt(3)
    assert found["a"] == pytest.approx((0.7 / 3, 0.7 / 3 - half, 0.7 / 3 + half))
    assert found["one"][0] == 0.3 and np.isnan(found["one"][1:]).all() and np.isnan(found["nan"]).all()


def test_means_over_seeds_take_a_seeds_rows_first():
    table = pd.DataFrame({"arm": ["b", "b", "b", "a", "a"], "seed": [0, 0, 1, 0, 1], "x": [1.0, 3.0, 4.0, 5.0, 5.0]})
    found = over_seeds(table, ["arm"], STATISTICS, ["x"])
    assert found.index.tolist() == ["b", "a"] and found["x"].tolist() == [3.0, 5.0]  # b: (2 + 4)/2, not 8/3
    ends = [3 - t.ppf(0.975, 1), 3 + t.ppf(0.975, 1)]  # of 2 and 4: the error is 1
    assert found.loc["b", ["x_low", "x_high"]].tolist() == pytest.approx(ends) and found.loc["a", "x_low"] == 5.0
    assert over_seeds(table, ["arm", "seed"], STATISTICS, ["x"]).index.names == ["arm", "seed"]


def test_resampled_trials_are_counted_with_the_generators_own_draws():
    counts_B_K = resample_counts(7, 300, np.random.default_rng(5))
    assert counts_B_K.shape == (301, 7) and (counts_B_K.sum(1) == 7).all() and (counts_B_K[0] == 1).all()
    assert (counts_B_K[1:] == np.random.default_rng(5).multinomial(7, [1 / 7] * 7, size=300)).all()
    value, (low, high) = estimate(np.array([7.0, *range(1001)]))
    assert (value, low, high) == (7.0, 25.0, 975.0)


def test_files_are_whole_or_absent(tmp_path):
    path = write_parquet(pd.DataFrame({"a": [1]}), tmp_path / "t.parquet")
    again = write_parquet(pd.DataFrame({"a": [1]}), tmp_path / "u.parquet")
    assert path.read_bytes() == again.read_bytes() and read_parquet(path, "x")["a"].tolist() == [1]
    with pytest.raises(ValueError):
        write_json({"a": float("nan")}, tmp_path / "n.json")
    with pytest.raises(FileNotFoundError, match="run `dvc repro train@grpo` first"):
        read_parquet(tmp_path / "none.parquet", "dvc repro train@grpo")
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ValueError, match=r"cannot be read .* delete it and run `dvc repro policy`"):
        read_parquet(path, "dvc repro policy")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.parquet", "u.parquet"]
