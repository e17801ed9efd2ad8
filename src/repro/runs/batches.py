"""What a batch's advantages and costs say about sampling from it, before anything is sampled."""

import numpy as np
import pandas as pd


def batches(selection: pd.DataFrame) -> pd.DataFrame:
    """A row per logged batch, from the rows of its rollouts: means over its N rollouts of the terms from which every
    cost of Cost-Aware Learning's eq. 8 follows, with |A| in the place of the gradient's norm G and c the tokens of
    prompt and response.

    cost: mean c; square: mean A²; optimal: mean |A|√c; variance: mean |A|·c, absolute: mean |A|. So uniform draws cost
    (Σc)(ΣA²)/(Σ|A|√c)² = cost·square/optimal² times the optimum, draws by |A| absolute·variance/optimal² times.
    silent: share of rollouts with A = 0; correlation: of |A| and c over the batch, NaN where one does not vary.
    """
    rows = []
    for step, batch in selection.groupby("step", sort=True):
        absolute_N, cost_N = batch["advantage"].abs().to_numpy(float), batch["cost"].to_numpy(float)
        vary = np.ptp(absolute_N) > 0 and np.ptp(cost_N) > 0
        rows.append(
            {
                "step": step,
                "rollouts": len(batch),
                "cost": cost_N.mean(),
                "square": (absolute_N**2).mean(),
                "optimal": (absolute_N * np.sqrt(cost_N)).mean(),
                "variance": (absolute_N * cost_N).mean(),
                "absolute": absolute_N.mean(),
                "silent": (absolute_N == 0).mean(),
                "correlation": np.corrcoef(absolute_N, cost_N)[0, 1] if vary else np.nan,
            }
        )
    return pd.DataFrame(rows)
