"""Every arm on every step of a dump: means over steps with their intervals, what is kept of what, which arm to try."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from repro.errors import Refused
from repro.evaluation.model import without_weights
from repro.methods.lengths import Lengths
from repro.methods.rollouts import Rollouts
from repro.policy.flops import FlopCounter
from repro.replay.arms import Arms, replayable
from repro.replay.measure import Batch, measured, whole
from repro.replay.plan import Plan, plan_of
from repro.replay.reading import Dump, read
from repro.replay.words import on_record, say, template
from repro.settings import Settings, load, weight_at
from repro.stats.intervals import over_seeds

MOST, ROLLOUTS = 500, 2**18  # steps that are replayed, and about how many rollouts: an arm takes a millisecond a step
GAIN = 0.02  # of gradient for the money; with less, the baseline is as good, and simpler


@dataclass(frozen=True)
class Replay:
    """What the arms make of somebody's rollouts.

    facts      of all rows: steps, rollouts, groups, silent (share of groups), response_tokens (mean), longest; of the
               replayed steps: replayed (their number), group_size, seconds (of a step's requests, the mean; NaN where
               the files have none), generation (share of the bill), weight (what a FLOP of generation costs, in others)
    rollouts   the rows of the replayed steps, `advantage`, and for each arm how often it draws the rollout to train on
    steps      a row per arm and step: the measures of `repro.replay.measure`
    arms       a row per arm: their means over steps and `relative`, signal over the baseline's, with _low and _high
    plan       group sizes, and sGPO's plan; None where counts do not say
    which      the arms that were replayed, and why others were not
    best       the arm to try: of baseline and primaries that with most signal, if it has GAIN more than the baseline
    notes      what the files cannot tell, what was assumed or left out, and which arms: a sentence each
    """

    settings: Settings
    dump: Dump
    facts: dict[str, float]
    rollouts: pd.DataFrame
    steps: pd.DataFrame
    arms: pd.DataFrame
    plan: Plan | None
    which: Arms
    best: str
    notes: list[str]

    @property
    def answer(self) -> str:
        """Which arm, which filter, which group size, and what is not known: Markdown."""
        titles = self.settings.titles_of(self.arms.index)
        return template("answer.md.j2", found=self, titles=titles, evidence=on_record(titles[self.best]))


def replay(
    source: str | Path | pd.DataFrame,
    *,
    tokenizer: str | None = None,
    rewards: Mapping[str, float] | None = None,
    columns: Mapping[str, str] | None = None,
    parameters: float | str | Path = 1.5e9,
    generation_share: float | None = None,
    settings: Settings | None = None,
    seed: int = 0,
) -> Replay:
    """Put the rollouts of `source` through the arms. Refused where nothing can be read, or learned from.

    tokenizer, rewards, columns: see `repro.replay.read`
    parameters: the model's, without its input embedding; or its config.json, by which attention counts too
    generation_share: of the bill of training on every rollout once; None: of its FLOPs
    settings: the arms, by default those of params.yaml (`with_arms` for your own)
    """
    if not 0 < (generation_share or 0.5) < 1:
        raise ValueError(f"generation_share is {generation_share}: a share is above 0 and below 1")
    settings, dump = settings or load(), read(source, tokenizer=tokenizer, rewards=rewards, columns=columns)
    step_N, names_S = pd.factorize(dump.rows["step"])
    most = min(MOST, len(names_S), max(1, ROLLOUTS * len(names_S) // len(step_N)))
    taken = np.unique(np.linspace(0, len(names_S) - 1, most).round().astype(int))
    row_K = np.flatnonzero(np.isin(step_N, taken))
    rows = dump.rows.iloc[row_K[np.argsort(step_N[row_K], kind="stable")]]
    group_size = int(rows.groupby("group").size().mode().iloc[0])
    which = replayable(settings, group_size)
    flops = flop_counter(parameters)
    batches = batches_of(rows, which, settings.baseline, flops)
    advantage_N = np.concatenate([batch.rollouts.advantages_N for batch in batches])
    if not advantage_N.any():
        raise Refused("no group of any step has different rewards: there is nothing that an arm could learn from")
    generation, training = (sum(getattr(batch, name) for batch in batches) for name in ("generation", "training"))
    weight = weight_at(generation_share, generation, training) if generation_share else 1.0
    steps, times = _measured(batches, which, flops, weight, settings.engine.refill_rounds, seed)
    rows = pd.concat([rows.assign(advantage=advantage_N), pd.DataFrame(times, rows.index)], axis=1)
    arms = _over_steps(steps, settings)
    correct_N = (rows["reward"] > (rows["reward"].min() + rows["reward"].max()) / 2).to_numpy()
    rewards = dump.rows.groupby("group")["reward"].agg(["min", "max"])
    facts = {
        "steps": len(names_S),
        "replayed": len(batches),
        "rollouts": len(dump.rows),
        "groups": len(rewards),
        "group_size": group_size,
        "silent": float((rewards["min"] == rewards["max"]).mean()),
        "response_tokens": float(dump.rows["response_tokens"].mean()),
        "longest": int(dump.rows["response_tokens"].max()),
        "seconds": float(np.mean([batch.seconds for batch in batches])),
        "generation": weight * generation / (weight * generation + training),
        "weight": weight,
    }
    thinned = [say("thinned", steps=len(names_S), taken=len(batches), rollouts=len(rows))] * (most < len(names_S))
    left_out = [say("left_out", why=say(why), arms="; ".join(titles)) for why, titles in which.left_out.items()]
    notes, best = [*dump.notes, *thinned, *left_out], _best(arms, settings)
    return Replay(settings, dump, facts, rows, steps, arms, plan_of(rows, correct_N, settings), which, best, notes)


def flop_counter(parameters: float | str | Path) -> FlopCounter:
    """Of a number of parameters, attention left out; or of the model of a transformers config.json."""
    try:
        return FlopCounter(int(float(str(parameters))), 0, 0)
    except ValueError:
        if not Path(parameters).exists():
            raise Refused(f"{parameters} is neither a number of parameters, as 1.5e9, nor a config.json") from None
    return FlopCounter.of(without_weights(parameters))


def batches_of(rows: pd.DataFrame, which: Arms, baseline: str, flops: FlopCounter) -> list[Batch]:
    """A batch for each step, with the baseline's advantages."""
    found, longest, count = [], int(rows["response_tokens"].max()), rows["step"].nunique()
    for place, (step, own) in enumerate(rows.groupby("step", sort=False)):
        lengths = Lengths(own["response_tokens"].to_numpy(int), own["truncated"].fillna(False).to_numpy(bool), longest)
        same = {f"{name}_N": own[name].to_numpy() for name in ("group", "prompt_tokens", "response_tokens")}
        rewards_N, whole_N_T = own["reward"].to_numpy(), np.ones((len(own), 1), bool)  # tokens are not chosen from
        advantages_N = which.methods[baseline].advantages(place, rewards_N, same["group_N"], lengths)
        batch = {"rewards_N": rewards_N, "advantages_N": advantages_N, "response_mask_N_T": whole_N_T, **same}
        rollouts = Rollouts.from_batch(**batch)
        seconds = own["seconds"].sum(skipna=False)
        found.append(Batch(int(step), place / count, rollouts, lengths, *whole(rollouts, flops), float(seconds)))
    return found


def _measured(
    batches: list[Batch], which: Arms, flops: FlopCounter, weight: float, refill_rounds: int, seed: int
) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """`steps`, and {arm: times_N} over all rollouts."""
    steps, times = [], {}
    for name, method in which.methods.items():
        own = []
        for place, batch in enumerate(batches):
            rng = np.random.default_rng([seed, zlib.crc32(name.encode()), place])
            found = measured(method, batch, flops, weight, refill_rounds, rng)
            row_M = found[1].row_N[found[1].advantages_N != 0] if found else np.zeros(0, int)
            own.append(np.bincount(row_M, minlength=len(batch.rollouts)).astype(np.int32))
            steps += [{"arm": name, "step": batch.step, **found[0]}] if found else []
        times[name] = np.concatenate(own)
    return pd.DataFrame(steps), times


def _over_steps(steps: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """Means over steps with t intervals, as if steps were independent; NaN for what an arm has not on each."""
    base = steps[steps["arm"] == settings.baseline].set_index("step")["signal"]
    table = steps.assign(relative=steps["signal"] / steps["step"].map(base))
    return over_seeds(table.rename(columns={"step": "seed"}), "arm", settings.statistics)


def _best(arms: pd.DataFrame, settings: Settings) -> str:
    signal = arms.loc[arms.index.isin([settings.baseline, *settings.primaries]), "signal"]
    better = signal.max() > (1 + GAIN) * signal[settings.baseline]
    return str(signal.idxmax()) if better else settings.baseline
