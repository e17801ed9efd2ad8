"""The front door, `from repro import compare, load`: an arm of your own, scores of your own, and the runs in git."""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd

from repro import settings as settings_module
from repro.errors import Refused
from repro.settings import Settings, nearest
from repro.stats import compare as of_panels
from repro.stats import panels
from repro.stats.runs import last_of
from repro.stats.tables import interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from repro.training import Tables

KEYS = ("policy", "arm", "seed")
CONTROL = "zvf"  # what dropping groups without a signal does alone, which many samplers do as well
OWN = "mine"
COSTS = ["trained_tokens", "paper_tokens", "flops"]


@dataclass(frozen=True, eq=False, repr=False)
class Compared:
    """An arm that was trained against others. answer: one sentence. table: a row per arm, accuracy when the runs end,
    the columns of `compare`, and costs, those of the baseline = 1. tables: of the runs (`repro.train`). figure: drawn
    when it is asked for. A notebook shows sentence, figure and table."""

    answer: str
    table: pd.DataFrame
    tables: "Tables"
    settings: Settings

    @property
    def figure(self) -> "Figure":
        return self.tables.plot(f"What does {[*self.settings.arms.values()][-1].title} reach, for which cost?")

    def __repr__(self) -> str:
        return f"{self.answer}\n\n{self.table.round(3).to_string()}"

    def _repr_html_(self) -> str:
        from repro.plots.style import to_png
        from repro.plots.words import in_words

        picture, words = b64encode(to_png(figure := self.figure)).decode(), escape(in_words(figure))
        image = f'<img src="data:image/png;base64,{picture}" alt="{words}">'
        return f"<p>{escape(self.answer)}</p>{image}{self.table.round(3).to_html()}"


def compare(
    what: pd.DataFrame | Callable | Mapping[str, Any] | str,
    baseline: str = "grpo",
    *,
    confidence: float = 0.95,
    corrected: str = "holm",
    scale: str = "tutorial",
    seeds: Sequence[int] = range(4),
    say: Callable[[str], Any] = print,
) -> "pd.DataFrame | Compared":
    """`what`, a sampler, an arm's parts (`Settings.with_arms`) or an arm's name: train it, the baseline and ZVF on
    `seeds` at a scale of params.yaml, and compare accuracy when the runs end, after as many steps: a `Compared`. Runs
    that the store has are read; by default the rest takes a minute or two on two cores.

    `what`, scores of your own, a row per run with `arm`, `seed`, `policy` (the model it starts from; may be absent) and
    a column for each measure: a row per measure and arm: its difference from `baseline`, over base policies and the
    seeds nested in them (repro.stats.nested), paired by both, with its interval; `adjusted`, p of no difference,
    corrected over the arms by "holm" or for their false discovery rate ("fdr"); answer: higher, lower or inconclusive;
    by_policy, the differences on each.

    Refused without two arms of two seeds; SettingsError if the arm cannot be built.

    >>> scores = pd.DataFrame({"arm": ["grpo"] * 3 + ["mine"] * 3, "seed": [0, 1, 2] * 2,
    ...                        "accuracy": [0.50, 0.52, 0.51, 0.60, 0.63, 0.61]})
    >>> compare(scores, "grpo")[["arm", "difference", "answer"]].round(3).values.tolist()
    [['mine', 0.103, 'higher']]
    """
    if isinstance(what, pd.DataFrame):
        return _differences(what, baseline, confidence, corrected)
    from repro.training import train

    settings = settings_module.load(scale=scale, seeds=list(seeds)).with_arms(_arms(what, baseline))
    tables = train(settings, say=say)
    ends = last_of(tables["evaluations"])
    found = _differences(ends["accuracy"].reset_index(), baseline, confidence, corrected).set_index("arm")
    table = ends.groupby("arm")[["accuracy", *COSTS]].mean().loc[list(settings.arms)]
    table[COSTS] /= table.loc[baseline, COSTS]
    table = table.join(found.drop(columns=["measure", "factor", "level", "by_policy"], errors="ignore"))
    own, titles = list(settings.arms)[-1], settings.titles_of(settings.arms)
    answer = _sentence(table.loc[own], titles[own], titles[baseline], len(settings.seeds))
    if not ends.loc[own, "updates"].any():
        answer += " It made no update: no rollout with an advantage was left, so this is the base policy."
    return Compared(answer, table.rename(index=titles), tables, settings)


def load(panel: str | None = None, table: str = "runs") -> pd.DataFrame:
    """A table of a panel of runs in git, with policy, arm and seed in front; runs/README.md lists the tables. Without
    a panel a row for each: how many runs, arms, base policies and seeds it has. Refused if there is no such panel."""
    if panel is None:
        every = panels.load("runs").groupby("panel", sort=False)[["run", "arm", "policy", "seed"]].nunique()
        return every.rename(columns={"run": "runs", "arm": "arms", "policy": "policies", "seed": "seeds"})
    if panel not in (known := panels.in_order()):
        raise Refused(f"there is no panel {panel!r} in runs/design.yaml{nearest(panel, known)}")
    runs = panels.made([panel])
    return runs if table == "runs" else of_panels.rows(table, runs[["run", "panel", *KEYS]])


def _arms(what: Callable | Mapping[str, Any] | str, baseline: str) -> dict[str, Any]:
    """The baseline, the control and then `what`, as `Settings.with_arms` takes them."""
    others = {name: name for name in dict.fromkeys([baseline, CONTROL]) if name != what}
    if isinstance(what, str):
        return others | {what: what}
    if callable(what):
        title = getattr(what, "__name__", OWN).strip("<>").replace("_", " ").capitalize()
        what = {"title": title, "samplers": [what]}
    return others | {OWN: {"title": OWN.capitalize(), **what}}


def _differences(scores: pd.DataFrame, baseline: str, confidence: float, corrected: str) -> pd.DataFrame:
    table = scores if "policy" in scores else scores.assign(policy="the one")
    measures = [name for name in table if name not in KEYS]
    if not {"arm", "seed"} <= set(table) or not measures or baseline not in set(table["arm"]):
        raise Refused(f"scores need the columns arm and seed, a column of numbers, and rows of the arm {baseline!r}")
    arms = [arm for arm in dict.fromkeys(table["arm"]) if arm != baseline]
    if not arms or table.groupby("arm")["seed"].nunique().min() < 2:
        raise Refused("a comparison takes two arms, with two seeds each")
    return of_panels.differences(table, measures, arms, baseline, confidence, corrected=corrected)


def _sentence(row: pd.Series, title: str, baseline: str, seeds: int) -> str:
    found = {"higher": "Yes", "lower": "No"}.get(row["answer"], "Not shown")
    said = f"against {baseline} is inconclusive" if found == "Not shown" else f"ends {row['answer']} than {baseline}"
    ends = interval(*row[["difference", "difference_low", "difference_high"]], "+.3f")
    spent = f"for {row['trained_tokens']:.2f} of its trained tokens and {row['flops']:.2f} of its FLOPs"
    how = f"over {seeds} seeds (adjusted p {row['adjusted']:.2g})"
    return f"{found}: {title} {said}, {ends} in accuracy {how}, {spent}."
