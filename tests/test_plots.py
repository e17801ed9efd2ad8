"""Figures over training and across arms: the numbers that they draw."""

from io import BytesIO

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from repro import settings as settings_module
from repro.plots import forest as arms
from repro.plots import interactive, training
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


def texts(figure):
    return [text.get_text() for ax in figure.axes for text in ax.texts]


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
    assert arms.reach(np.array([-0.01, 0.02, 0.03, -0.5, np.nan, np.inf])) == (-0.5, 0.03)  # 0.5 of 4: usual
    assert arms.reach(np.array([-0.01, 0.02, 0.03, 0.02, 0.01, 0.02, 0.02, -0.5])) == (-0.01, 0.03)
    assert arms.reach(np.array([np.nan])) == (0.0, 0.0) == arms.reach(np.zeros(3))


def rows(n=8):
    """A summary of a baseline and n arms; the last is far out, the one before it never got to the level."""
    names = SETTINGS.compared_arms[: n + 1]
    value = np.linspace(-0.01, 0.02, n + 1)
    value[0], value[-1] = 0.0, -0.4
    table = pd.DataFrame({"arm": names, "title": [SETTINGS.arms[name].title for name in names], "group": "One"})
    table = table.assign(resolved=["baseline", "more", *["not resolved"] * (n - 2), "less"])
    for name, middle in {"difference": value, "trained_tokens_ratio_90": np.exp(value), "pass_1": 0.5 + value}.items():
        table = table.assign(**{name: middle, f"{name}_low": middle - 0.005, f"{name}_high": middle + 0.005})
    table["trained_tokens_ratio_90_reached"] = [True] * (n - 1) + [False, True]
    opened = ~table["trained_tokens_ratio_90_reached"]
    return table.assign(trained_tokens_ratio_90_open=opened, pass_8=np.nan, pass_16=np.nan)


def markers(figure):
    """{(colour, face)} of the points, in order."""
    return [(line.get_color(), line.get_markerfacecolor()) for line in figure.axes[0].lines if line.get_marker() == "o"]


def test_differences_are_filled_where_resolved_and_an_outlier_is_an_arrow():
    figure = arms.difference(rows(), SETTINGS, "Which?")
    assert markers(figure)[0] == (arms.BETTER, arms.BETTER)
    assert set(markers(figure)[1:]) == {(arms.PLAIN, "white")} and len(markers(figure)) == 7
    assert texts(figure) == ["◀ -0.4"]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == [*rows()["title"][1:], "One"]


def test_a_cost_that_was_not_reached_is_an_open_marker():
    figure = arms.cost_ratios(rows(), SETTINGS, 0.9, "What?")
    assert len(figure.axes) == 1 and figure.axes[0].get_xscale() == "log"
    assert markers(figure)[-1] == (arms.BETTER, "white") and set(markers(figure)[:-1]) == {(arms.BETTER, arms.BETTER)}
    none = rows().assign(trained_tokens_ratio_90=np.nan)  # the baseline never rose
    undefined = arms.cost_ratios(none, SETTINGS, 0.9, "What?")
    assert set(texts(undefined)) == {" undefined"} and undefined.finding.endswith("none is known")
    bounds = [f"trained_tokens_ratio_90_{end}" for end in ("low", "high")]
    arms.cost_ratios(rows().assign(**dict.fromkeys(bounds, np.nan)), SETTINGS, 0.9, "One seed?").savefig(BytesIO())


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
    rows = [("zvf", "gain", 0.1, 0.0, 0.2, "open"), ("zvf", "factor", 2.0, 1.5, 4.0, "higher")]
    table = pd.DataFrame(rows, columns=["arm", "panel", "at", "at_low", "at_high", "answer"])
    options = {"spec": {"gain": "+.1f", "factor": ".2f"}, "reference": {"gain": 0.0, "factor": 1.0}}
    choices = {"panel": {"gain": "gain", "factor": "factor"}}
    figure = interactive.estimates(new_figure(3.0)[0], table, by="arm", value="at", choices=choices, **options)
    drawn = figure.interactive["columns"]
    assert drawn["reference"] == [0, 1] and drawn["said"]["words"] == ["+0.1 [+0.0, +0.2]", "2.00 [1.50, 4.00]"]
    assert drawn["fill"]["words"][0] == "white" and drawn["fill"]["words"][1] != "white"
    limits = next(of["value"] for of in figure.interactive["spec"]["params"] if of["name"] == "limits")
    assert limits == {"gain": [0.0, 0.2], "factor": [1.0, 4.0]}
