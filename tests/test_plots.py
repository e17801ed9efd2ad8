"""Figures over training and across arms: the numbers that they draw."""

from io import BytesIO

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from repro import settings as settings_module
from repro.plots import answers, interactive, training
from repro.plots.style import COLORS, is_large, new_figure, to_png
from repro.stats.intervals import mean_intervals

SETTINGS = settings_module.load()
STATISTICS = SETTINGS.statistics.model_copy(update={"resamples": 500})
SETTINGS = SETTINGS.model_copy(update={"statistics": STATISTICS})
BASE = SETTINGS.baseline


def evaluations(arm, seed, costs, accuracies):
    steps = range(0, 8 * len(costs), 8)
    frame = pd.DataFrame({"arm": arm, "seed": seed, "step": steps, "accuracy": accuracies, "diverged": False})
    return frame.assign(
        share=[step / 80 for step in steps],
        trained_tokens=costs,
        generated_tokens=[2 * cost for cost in costs],
        flops=costs,
    )


def test_panels_hold_every_compared_arm_once_and_few_each():
    panels = training.panels(SETTINGS)
    names = [name for part in panels.values() for name in part]
    assert sorted([*names, BASE]) == sorted(SETTINGS.compared_arms)
    assert max(map(len, panels.values())) <= training.PER_PANEL


def test_intervals_of_a_curve_are_those_of_its_points():
    values_S_E = np.random.default_rng(0).normal(size=(5, 7))
    mean_E, low_E, high_E = training.mean_and_interval(values_S_E, STATISTICS)
    expected = mean_intervals({str(e): values_S_E[:, e] for e in range(7)}, STATISTICS)
    np.testing.assert_allclose(np.array([mean_E, low_E, high_E]).T, list(expected.values()), atol=1e-12)


def test_unknown_entries_are_left_out_of_a_curve():
    values_S_E = np.array([[1.0, 1.0, np.nan], [2.0, np.nan, np.nan], [3.0, np.nan, np.nan]])
    mean_E, low_E, high_E = training.mean_and_interval(values_S_E, STATISTICS)
    assert mean_E[:2].tolist() == [2.0, 1.0] and np.isnan(mean_E[2])
    assert (low_E[0], high_E[0]) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))  # t on two
    assert np.isnan([*low_E[1:], *high_E[1:]]).all()


def test_gain_at_equal_cost_is_read_off_the_baselines_own_curve():
    runs = pd.concat(
        [
            evaluations("base", 0, [0, 100, 200], [0.2, 0.4, 0.5]),
            evaluations("arm", 0, [0, 50, 400], [0.2, 0.5, 0.6]),
            evaluations("arm", 9, [0, 1, 2], [0.0, 0.0, 0.0]),  # no such run of the baseline
        ]
    )
    gain = training.gain_at_equal_cost(runs, "base", "trained_tokens")
    assert gain[gain["arm"] == "arm"]["gain"].tolist() == pytest.approx([0.0, 0.5 - 0.3, 0.6 - 0.5])
    assert (gain[gain["arm"] == "base"]["gain"] == 0).all() and 9 not in set(gain["seed"])
    assert training.with_axis(runs, "total_tokens")["total_tokens"].tolist()[1:3] == [300, 600]


def test_running_means_stay_within_their_seed():
    runs = pd.DataFrame({"seed": [0] * 6 + [1], "kl": [1.0, 3.0, np.nan, 2.0, 2.0, 2.0, 7.0]})
    assert training.running_mean(runs, "kl").tolist() == pytest.approx([1, 2, 2, 2, 2, 2.25, 7])


def test_a_panel_reaches_as_far_as_the_usual_and_not_to_an_outlier():
    assert answers.reach(np.array([-0.01, 0.02, 0.03, -0.5, np.nan, np.inf])) == (-0.5, 0.03)  # 0.5 of 4: usual
    assert answers.reach(np.array([-0.01, 0.02, 0.03, 0.02, 0.01, 0.02, 0.02, -0.5])) == (-0.01, 0.03)
    assert answers.reach(np.array([-0.01, 0.02, 0.03]), more=[0.05, 0.5, np.nan]) == (-0.01, 0.05)
    assert answers.reach(np.array([np.nan])) == (0.0, 0.0) == answers.reach(np.zeros(3))


def test_answers_are_filled_where_told_and_an_outlier_is_an_arrow():
    table = pd.DataFrame({"difference": [0.01, 0.02, -0.01, -0.02, 0.0, -0.4]}, list("abcdef"))
    table = table.assign(difference_low=table["difference"] - 0.005, difference_high=table["difference"] + 0.005)
    table = table.assign(
        family=[*["One"] * 5, "Two"], answer=["higher", *["inconclusive"] * 4, "lower"], each=[[0.1]] * 6
    )
    figure = answers.answers(
        {"all": table, "few": table.iloc[:2]}, dict(zip("abcdef", "ABCDEF", strict=True)), "Which?"
    )
    left, right = figure.axes
    points = [line for line in left.lines if line.get_marker() == "o" and line.get_color() != "0.6"]
    assert [line.get_markerfacecolor() for line in points] == [COLORS[0], *["white"] * 4]
    assert [text.get_text() for text in left.texts] == ["◀ -0.4"] and len(right.lines) == 1 + 2 * 3
    assert [label.get_text() for label in left.get_yticklabels()] == [*"ABCDEF", "One", "Two"]
    assert figure.finding == "all: A higher, F lower, 4 inconclusive; few: A higher, 1 inconclusive"
    assert figure.interactive["columns"]["shape"]["words"] == ["circle", "triangle-left"]


def test_a_large_figure_is_a_png_in_the_projects_own_colours():
    figure, axes = new_figure(8.0)
    for place, color in enumerate(COLORS):
        axes[0, 0].axhspan(place, place + 1, color=color)
    assert is_large(figure) and not is_large(new_figure(4.0)[0])
    drawn = to_png(figure)
    assert drawn == to_png(figure)
    found = {color for _, color in Image.open(BytesIO(drawn)).convert("RGB").getcolors()}
    assert {tuple(round(255 * part) for part in to_rgb(color)) for color in (*COLORS, "white")} <= found


def test_estimates_of_two_panels_have_a_reference_and_a_reach_each_and_open_ones_are_white():
    rows = [("zvf", "gain", 0.1, 0.0, 0.2, "inconclusive"), ("zvf", "factor", 2.0, 1.5, 4.0, "higher")]
    table = pd.DataFrame(rows, columns=["arm", "panel", "at", "at_low", "at_high", "answer"])
    options = {"spec": {"gain": "+.1f", "factor": ".2f"}, "reference": {"gain": 0.0, "factor": 1.0}}
    choices = {"panel": {"gain": "gain", "factor": "factor"}}
    figure = interactive.estimates(new_figure(3.0)[0], table, by="arm", value="at", choices=choices, **options)
    drawn = figure.interactive["columns"]
    assert drawn["reference"] == [0, 1] and drawn["said"]["words"] == [
        "+0.1 [+0.0, +0.2], inconclusive",
        "2.00 [1.50, 4.00], higher",
    ]
    assert drawn["fill"]["words"][0] == "#ffffff" and drawn["fill"]["words"][1] != "#ffffff"
    limits = next(of["value"] for of in figure.interactive["spec"]["params"] if of["name"] == "limits")
    assert limits == {"gain": [0.0, 0.2], "factor": [1.0, 4.0]}
