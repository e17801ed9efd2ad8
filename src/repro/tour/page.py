"""The tour's page: who ended where at which cost, the curves, and one group as the sampler saw it. One offline file."""

from base64 import b64encode
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from repro.files import write_whole
from repro.plots.batch import batch_svg
from repro.plots.narrow import stacked
from repro.plots.style import PHONE_DPI, group_styles, new_figure, to_png, to_svg
from repro.plots.training import AXES
from repro.plots.words import in_words, says
from repro.report.html import TEMPLATE as REPORTS
from repro.report.safe import with_policy
from repro.settings import Settings
from repro.stats.runs import at_budgets, last_of

TEMPLATE = Path(__file__).with_name("page.html.j2")
COSTS = {"trained_tokens": "tokens trained on, as computed", "paper_tokens": "tokens, papers' count", "flops": "FLOPs"}


def write_page(path: Path, tables: dict[str, pd.DataFrame], settings: Settings, own: str, source: str) -> Path:
    """Write the page of a tour whose sampler is arm `own`, its code `source`."""
    import jinja2

    evaluations = tables["evaluations"]
    ends = last_of(evaluations)
    title = f"Does {settings.arms[own].title} beat GRPO?"
    group = one_group(tables, own)
    figure = curves(evaluations, settings)
    drawing = batch_svg(group, trained_on(group, settings.arms[own].title))
    before, _, rest = drawing.partition("<style>")  # into the head: the policy allows no style of the body
    style, _, after = rest.partition("</style>")
    loader = jinja2.FileSystemLoader([TEMPLATE.parent, REPORTS])  # the second: tables scroll as in reports
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = environment.get_template(TEMPLATE.name).render(
        title=title,
        answer=answer(ends, settings, own),
        rows=rows(ends, tables["steps"], settings),
        costs=list(COSTS.values()),
        seeds=settings.seeds,
        figure=b64encode(to_svg(figure).encode()).decode(),
        narrow=b64encode(to_png(stacked(figure), PHONE_DPI)).decode(),
        alt=in_words(figure),
        style=style,
        drawing=before + after,
        prompt=group["prompt"].iloc[0],
        source=source,
    )
    page = with_policy(text)  # a model wrote the responses
    return write_whole(path, lambda partial: partial.write_text(page, encoding="utf-8"))


def curves(evaluations: pd.DataFrame, settings: Settings) -> Figure:
    """Accuracy against what was spent, trained and in all: thin, each seed; thick, their mean. No intervals: from two
    seeds they fill the panel."""
    figure, panels = new_figure(3.9, 1, 2, sharey=True)
    means = at_budgets(evaluations).groupby(["arm", "share"])[["accuracy", *COSTS]].mean()
    for ax, axis in zip(panels[0], ("trained_tokens", "flops"), strict=True):
        for name, style in group_styles(list(settings.arms), settings.baseline).items():
            for _, run in evaluations[evaluations["arm"] == name].groupby("seed"):
                ax.plot(run[axis], run["accuracy"], color=style["color"], linewidth=0.8, alpha=0.5)
            ax.plot(means.loc[name, axis], means.loc[name, "accuracy"], label=settings.arms[name].title, **style)
        ax.set_xlabel(AXES[axis])
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    panels[0, 0].set_ylabel("held-out accuracy (pass@1)")
    panels[0, 0].legend(loc="lower right")
    ends = last_of(evaluations).groupby("arm")["accuracy"].mean().sort_values(ascending=False)
    order = ", ".join(f"{settings.arms[name].title} at {value:.3f}" for name, value in ends.items())
    return says(figure, f"Mean accuracy at the end, highest first: {order}")


def rows(ends: pd.DataFrame, steps: pd.DataFrame, settings: Settings) -> list[dict]:
    """A row for each arm, means over seeds: final accuracy, difference from the baseline, costs relative to its; and in
    how many steps of all seeds it made an update."""
    means = ends.groupby("arm")[["accuracy", *COSTS]].mean()
    skipped = steps.groupby("arm")["skipped"].agg(["sum", "size"])
    base = means.loc[settings.baseline]
    return [
        {
            "title": arm.title,
            "accuracy": f"{means.at[name, 'accuracy']:.3f}",
            "difference": "–" if name == settings.baseline else signed(means.at[name, "accuracy"] - base["accuracy"]),
            "updated": f"{skipped.at[name, 'size'] - skipped.at[name, 'sum']} of {skipped.at[name, 'size']}",
            "costs": [f"{means.at[name, cost] / base[cost]:.2f}" for cost in COSTS],
        }
        for name, arm in settings.arms.items()
    ]


def answer(ends: pd.DataFrame, settings: Settings, own: str) -> str:
    """Two sentences: the differences seed by seed at which cost, or that there was no update; and what so few seeds are
    worth."""
    title, baseline = settings.arms[own].title, settings.arms[settings.baseline].title
    accuracy, tokens = (ends[column].unstack("seed") for column in ("accuracy", "trained_tokens"))
    differences = accuracy.loc[own] - accuracy.loc[settings.baseline]
    each = " and ".join(f"{signed(value)} on seed {seed}" for seed, value in differences.items())
    if not ends.loc[own, "updates"].any():
        return (
            f"{title} made no update: in every step its sampler left no rollout, or none with an advantage. "
            f"What ends {each} against {baseline} is the base policy."
        )
    share = tokens.loc[own].mean() / tokens.loc[settings.baseline].mean()
    return (
        f"{title} ends {each} against {baseline}, with {share:.2f} of the tokens trained on, as computed. "
        f"{len(differences)} seeds show a direction at best: evaluations are sampled, and seeds of one arm differ."
    )


def one_group(tables: dict[str, pd.DataFrame], own: str) -> pd.DataFrame:
    """Of the sampler's logged rollouts with their texts, the group from which it chose the most unevenly; rows as
    `batch_svg` wants them."""
    rollouts = tables["rollouts"].query("arm == @own").rename(columns={"times_trained": "drawn"})
    spread = rollouts.groupby(["seed", "step", "prompt"])["drawn"].transform("std").fillna(0.0)
    signal = rollouts.groupby(["seed", "step", "prompt"])["advantage"].transform(lambda values: values.abs().max())
    best = rollouts.loc[(spread * (signal > 0) + 1e-6 * spread).idxmax()]
    same = (rollouts[["seed", "step", "prompt"]] == best[["seed", "step", "prompt"]]).all(axis=1)
    return rollouts[same].head(8).round({"advantage": 3})


def trained_on(group: pd.DataFrame, title: str) -> str:
    """What the picture of `group` shows, in words."""
    drawn, right = group["drawn"] > 0, group["reward"] > 0
    return (
        f"{title} trained on {drawn.sum()} of {len(group)} responses to one prompt, "
        f"on {(drawn & right).sum()} of the {right.sum()} rewarded"
    )


def signed(value: float) -> str:
    """+0.012, with a minus as in print."""
    return f"{value:+.3f}".replace("-", "−")
