"""Which rollouts of the logged batches trained the policy, and which were left out."""

import numpy as np
import pandas as pd

CLASSES = ("all wrong", "under half right", "half or more right", "all right")


def success_class(selection: pd.DataFrame) -> pd.Series:
    """One of `CLASSES` for each rollout: how many of its group were rewarded."""
    success = selection.groupby(["seed", "step", "query"])["reward"].transform("mean").to_numpy()
    cases = [success <= 0, success < 0.5, success < 1]
    return pd.Series(np.select(cases, CLASSES[:3], CLASSES[3]), selection.index)


def shares_by(selection: pd.DataFrame, key: pd.Series) -> pd.DataFrame:
    """A row per seed and class, seeds without a class included: `batch`, its share of the batch's rollouts;
    `trained`, its share of those trained on, repeats counted (NaN if none was); `used`, the share of its rollouts that
    trained at least once (NaN if it had none)."""
    rows = selection.assign(key=key.to_numpy(), used=selection["times_trained"] > 0)
    sums = rows.groupby(["seed", "key"]).agg(
        rollouts=("used", "size"), times=("times_trained", "sum"), used=("used", "sum")
    )
    sums = sums.reindex(pd.MultiIndex.from_product(sums.index.levels), fill_value=0)
    totals = sums.groupby(level="seed").transform("sum")
    return pd.DataFrame(
        {
            "batch": sums["rollouts"] / totals["rollouts"],
            "trained": sums["times"] / totals["times"].where(totals["times"] > 0),
            "used": sums["used"] / sums["rollouts"].where(sums["rollouts"] > 0),
        }
    ).reset_index()


def trained_and_left(selection: pd.DataFrame) -> pd.DataFrame:
    """Two rows (index), `trained` and `left`: rollouts and tokens, shares of the batch; means of |A| and of
    response_tokens, a rollout counted as often as it trained; the most times that one trained, and the least and the
    largest weight. NaN where there is no such rollout."""
    rows = selection.assign(size=selection["advantage"].abs(), used=selection["times_trained"] > 0)
    table = {}
    for name, part in (("trained", rows[rows["used"]]), ("left", rows[~rows["used"]])):
        times = part["times_trained"].clip(lower=1)
        row = {"rollouts": len(part) / len(rows), "tokens": part["cost"].sum() / rows["cost"].sum()}
        for measure, label in {"size": "|A|", "response_tokens": "response_tokens"}.items():
            row[label] = (part[measure] * times).sum() / times.sum() if len(part) else np.nan
        if name == "trained":
            row |= {
                "most_times": times.max(),
                "least_weight": part["weight"].min(),
                "most_weight": part["weight"].max(),
            }
        table[name] = row
    return pd.DataFrame.from_dict(table, orient="index")


def share_kept(selection: pd.DataFrame, steps: pd.DataFrame, before_S: pd.Series) -> float:
    """Of the rollouts generated for the logged steps, the share that the filter kept: `selection` holds only those.

    `steps`: the arm's, whose `rollouts` are cumulative. `before_S`: rollouts of each seed before the first step."""
    ordered = steps.sort_values("step")
    first = ordered["rollouts"] - ordered["seed"].map(before_S)
    generated = ordered.groupby("seed")["rollouts"].diff().fillna(first)
    return float(len(selection) / generated[ordered["step"].isin(selection["step"])].sum())
