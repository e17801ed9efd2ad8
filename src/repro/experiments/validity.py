"""Does one bed or model predict which arms end higher on another? The sources, as data, and every pair of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control

from repro.settings import Statistics
from repro.stats import agreement as agreeing
from repro.stats import compare, panels, rates
from repro.stats.correlation import spearman
from repro.stats.multiplicity import holm
from repro.stats.outcomes import at_shares
from repro.verl.published import printed

KS = (2, 4, 8, 16)
MEASURES = {"accuracy": "temperature 1", "greedy": "greedy", **{f"pass@{k}": f"pass@{k}" for k in KS}}
BENCH, MODEL, PAPER = "bench", "language model", "paper"
LOW, HIGH = 0.27, 0.75  # generation's share of GRPO's bill


@dataclass(frozen=True)
class Panels:
    """What a source is read from. `price`: None where no bill was set, or a model's own. `on_the_way`: read off the
    curves when the bill at `price` is paid, at temperature 1 and greedily; else at the runs' ends. `steps`: when as
    much is paid as the baseline pays in these steps. `tuned`: of an arm's rates the best counts. `task`: of queries
    whose family begins so alone. A source without any run is left out, and of `names` those that have none."""

    name: str
    kind: str
    names: tuple[str, ...]
    price: float | None = None
    on_the_way: bool = False
    tuned: bool = False
    task: str = ""
    steps: int = 0


SLIPS, WRONG, SMOLLM2 = "slips", "wrong procedures", "SmolLM2"
TUNED = ("budget", "tuned", "tuned-objectives")  # most arms at rates of their own
ENDED = {LOW: ("confirm-27", "online-27"), HIGH: ("confirm-75", "online-75")}  # most arms at rates of their own, too
WORDS = {LOW: ("words-arms",), HIGH: ("words-arms-75",)}
STEPS = 12  # that GRPO makes on the language model
EARLY = f", {STEPS} steps"
SOURCES = (
    *(Panels(SLIPS, BENCH, TUNED, price, on_the_way=True, tuned=True) for price in (LOW, HIGH)),
    *(Panels(SLIPS + EARLY, BENCH, TUNED, price, tuned=True, steps=STEPS) for price in (LOW, HIGH)),
    Panels(f"{SLIPS}, other seeds", BENCH, ("answers",), LOW),  # its own price, at which its runs end
    Panels(f"{SLIPS}, other seeds", BENCH, ("answers",), HIGH, on_the_way=True),
    Panels(f"{SLIPS}, policy a", BENCH, ("steps",)),  # all arms of the papers, at one rate, after as many steps
    Panels(f"{SLIPS}, policy b", BENCH, ("others",)),
    *(Panels(WRONG, BENCH, names, price) for price, names in ENDED.items()),
    *(Panels(WRONG + EARLY, BENCH, names, price, steps=STEPS) for price, names in ENDED.items()),
    Panels(f"{WRONG}, all arms", BENCH, ("every-arm",), LOW),  # at one rate, from two base policies
    Panels(f"{WRONG}, all arms{EARLY}", BENCH, ("every-arm",), LOW, steps=STEPS),
    *(Panels(SMOLLM2, MODEL, names, price) for price, names in WORDS.items()),
    *(Panels(f"{SMOLLM2}, word problems", MODEL, names, price, task="story") for price, names in WORDS.items()),
    *(Panels(f"{SMOLLM2}, lists", MODEL, names, price, task="list") for price, names in WORDS.items()),
    Panels(f"{SMOLLM2}, held out", MODEL, ("words-held-out",), LOW),  # whose arms the reading at STEPS had not seen
)
PAPERS = {  # by scale of configs/papers/tables; another that has as many arms is a source by its own name
    "qwen2-5-math-1-5b-instruct": "Cost-Aware, Qwen 1.5B",
    "qwen2-5-math-7b": "D³S, Qwen 7B",
    "qwen2-5-math-1-5b": "D³S, Qwen 1.5B",
    "llama3-1-8b-instruct": "D³S, Llama 8B",
    "openmath2-llama3-1-8b": "D³S, OpenMath 8B",
}
PRINTED = {"pass@1": "accuracy", "pass@8": "pass@8", "pass@16": "pass@16"}
HABITS = {  # of an arm's steps, less the baseline's
    "silent": "share of zero-variance groups",
    "updated": "share of rollouts updated on",
    "tokens": "tokens per response",
    "clipped": "share of gradients clipped",
}


@dataclass(frozen=True)
class Source:
    """`runs`: a row per run (of a table, per arm and benchmark) with policy, arm, seed and those of MEASURES that it
    has; run and panel where there are any. `steps`: as of Panels."""

    name: str
    kind: str
    price: float | None
    runs: pd.DataFrame
    steps: int = 0

    def differences(self, measure: str, baseline: str) -> pd.DataFrame:
        """differences_A_U (repro.stats.agreement)."""
        return agreeing.by_unit(self.runs, measure, baseline)

    def apart_from(self, other: "Source") -> bool:
        """Whether no seed of a base policy has runs in both, which would be alike at another price or rate, and whether
        both are at one price, or one of them at none; two beds also after as many steps."""
        if self.kind == other.kind and self.steps != other.steps:
            return False
        seeds = [set(zip(of.runs["policy"], of.runs["seed"], strict=True)) for of in (self, other)]
        if PAPER not in (self.kind, other.kind) and seeds[0] & seeds[1]:
            return False
        return self.price == other.price or None in (self.price, other.price)


def sources(baseline: str) -> list[Source]:
    """Those that are there: of SOURCES, then the papers' tables with LEAST arms or more apart from the baseline."""
    found = (source(of, baseline) for of in SOURCES)
    return [of for of in found if of] + published(baseline)


def source(of: Panels, baseline: str) -> Source | None:
    """None where none of its runs has been made."""
    names = [name for name in of.names if len(panels.load("runs", name))]
    return Source(of.name, of.kind, of.price, _read(of, names, baseline), of.steps) if names else None


def _read(of: Panels, names: Sequence[str], baseline: str) -> pd.DataFrame:
    where = ["policy", "seed"] if of.kind == MODEL else ["policy"]  # whose seeds are made one by one
    runs = pd.concat([_made(name, of.tuned, where) for name in names], ignore_index=True)
    if of.tuned:
        runs = runs[runs["rate"] == runs["arm"].map(rates.best_rates(rates.sensitivity())["best"])]
    if of.task:
        asked = compare.rows("questions", runs[["run", "panel"]])
        own = asked[asked["family"].str.startswith(of.task)]
        right = own.assign(accuracy=own["successes"] / own["samples"]).groupby("run")[["accuracy", "greedy"]].mean()
        return runs.join(right, on="run")
    if of.on_the_way or of.steps:
        return when_paid(runs, baseline, of.price, of.steps)
    return compare.ended(runs, KS)


def when_paid(runs: pd.DataFrame, baseline: str, price: float, steps: int = 0) -> pd.DataFrame:
    """`runs` with accuracy, greedy if measured, when the bill at `price`, or the baseline's for `steps`, is paid."""
    curves = compare.rows("curves", runs)
    paid = compare.priced(curves, baseline, compare.weight_of(curves, baseline, price))
    share = _share(paid[paid["arm"] == baseline], steps) if steps else 1.0
    measures = [name for name in ("accuracy", "greedy") if name in paid and paid[name].notna().all()]
    read = {name: at_shares(paid, [share], name)[share] for name in measures}
    return runs.join(pd.DataFrame(read), on="run")


def _share(curves: pd.DataFrame, steps: int) -> float:
    """Of the bill, that these runs have paid after as many steps: linear between evaluations, the mean over runs."""
    in_order = curves.sort_values("step").groupby("run")
    return float(np.mean([np.interp(steps, own["step"], own["share"]) for _, own in in_order]))


def _made(name: str, tuned: bool, where: Sequence[str]) -> pd.DataFrame:
    rate = {"rate": (panels.RATE, float, panels.engine_of(name)["learning_rate"])} if tuned else None
    return compare.load([name], rate, where)


def published(baseline: str) -> list[Source]:
    """The papers' tables, a source per model: benchmarks in the place of base policies. CISPO's rows are in a table of
    their own, of the same model."""
    rows = printed()
    rows = rows[rows["arm"].notna() & (rows["arm"] != "base") & (rows["source"] != "average")]
    scale = rows["scale"].str.removeprefix("paper-").str.removesuffix("-cispo")
    rows = rows.assign(
        scale=scale, policy=rows["source"], measure=rows["metric"].map(PRINTED), value=rows["percent"] / 100
    )
    found = []
    for model, own in rows.groupby("scale", sort=False):
        if own["arm"].nunique() > agreeing.LEAST and baseline in set(own["arm"]):
            once = own.drop_duplicates(["arm", "policy", "measure"])
            wide = once.pivot(index=["policy", "arm"], columns="measure", values="value").reset_index()
            found.append(Source(PAPERS.get(model, model), PAPER, None, wide.assign(seed=0)))
    return found


class Pair(NamedTuple):
    """Two sources by a measure; x, y: their differences_A_U from the baseline, of the arms in common."""

    measure: str
    first: Source
    second: Source
    x: pd.DataFrame
    y: pd.DataFrame

    @property
    def labels(self) -> dict[str, Any]:
        """measure, price, first, second, kinds."""
        kinds = f"{self.first.kind}, {self.second.kind}"
        price = self.first.price or self.second.price
        return dict(measure=self.measure, price=price, first=self.first.name, second=self.second.name, kinds=kinds)


def pairs(
    found: Sequence[Source],
    baseline: str,
    least: int = agreeing.LEAST,
    measures: Sequence[str] = ("accuracy",),
    of_arms: Sequence[str] | None = None,
) -> Iterator[Pair]:
    """Those of `found` that are apart and have `least` arms in common, of `of_arms` if given."""
    for measure in measures:
        having = [(of, of.differences(measure, baseline)) for of in found if measure in of.runs]
        for (first, x), (second, y) in combinations(having, 2):
            arms = x.index.intersection(y.index)
            arms = arms if of_arms is None else arms.intersection(pd.Index(of_arms))
            if first.apart_from(second) and len(arms) >= least:
                yield Pair(measure, first, second, x.loc[arms], y.loc[arms])


def compared(asked: Iterable[Pair], statistics: Statistics) -> pd.DataFrame:
    """A row per pair: its labels, what `repro.stats.agreement.agreement` tells, adjusted (p at the false discovery rate
    over all rows), and answer: agree or oppose, where `adjusted` says so; else inconclusive."""
    table = pd.DataFrame([{**of.labels, **agreeing.agreement(of.x, of.y, statistics)} for of in asked])
    table["adjusted"] = false_discovery_control(table["p"])
    sign = np.where(table["rho"] > 0, "agree", "oppose")
    return table.assign(answer=np.where(table["adjusted"] < 1 - statistics.confidence, sign, "inconclusive"))


def calibrated(asked: Iterable[Pair], confidence: float) -> pd.DataFrame:
    """A row per arm and pair: its labels, arm, and what `repro.stats.agreement.predicted` tells."""
    rows = [
        {**of.labels, "arm": arm, **row}
        for of in asked
        for arm, row in agreeing.predicted(of.x, of.y, confidence).to_dict("index").items()
    ]
    return pd.DataFrame(rows)


def habits(source: Source, baseline: str) -> pd.DataFrame:
    """HABITS of each arm (the index): means over a run's steps, less those of the baseline's run with its base policy
    and seed; of tokens the logarithm of their ratio."""
    steps = compare.rows("steps", source.runs[["run", "panel", *compare.KEYS]]).groupby("run")
    of_run = {
        "silent": steps["groups_without_signal"].mean(),
        "updated": steps["computed_rollouts"].sum() / steps["rollouts"].max(),
        "tokens": np.log(steps["response_tokens"].mean()),
        "clipped": steps["gradient_clipped"].mean(),
    }
    table = source.runs[["run", *compare.KEYS]].join(pd.DataFrame(of_run), on="run")
    return pd.DataFrame({name: agreeing.by_unit(table, name, baseline).mean(axis=1) for name in HABITS})


def driven(asked: Iterable[Pair], baseline: str, confidence: float) -> pd.DataFrame:
    """What disagreement goes with: a row per habit and pair of sources that have runs: its labels, habit, arms, rho,
    rho_low, rho_high, p, and adjusted (Holm, over all rows). ρ is between how much more of the habit an arm has in the
    second than in the first, and how many ranks higher it is there."""
    rows = []
    for of in asked:
        ranks = of.y.mean(axis=1).rank() - of.x.mean(axis=1).rank()
        more = (habits(of.second, baseline) - habits(of.first, baseline)).reindex(ranks.index)
        for habit in HABITS:
            rho = spearman(more[habit], ranks)
            ends = dict(zip(("rho_low", "rho_high", "p"), agreeing.ranked(rho, len(ranks), confidence), strict=True))
            rows.append({**of.labels, "habit": habit, "arms": len(ranks), "rho": rho, **ends})
    table = pd.DataFrame(rows)
    return table.assign(adjusted=holm(table["p"].fillna(1.0)))
