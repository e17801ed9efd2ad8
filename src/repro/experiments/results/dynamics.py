"""What happens on the way, in a sentence."""

import pandas as pd

from repro.settings import Settings


def conclusion(steps: pd.DataFrame, settings: Settings) -> str:
    """Which compared arms find the most and the fewest useful groups, and move furthest from the base policy: means
    over steps and seeds of `usefulness` and, over seeds, of the last step's `kl`."""
    known = steps[steps["arm"].isin(settings.compared_arms)]
    useful = known.groupby("arm", sort=False)["usefulness"].mean()
    last = known[known["step"] == known.groupby("arm")["step"].transform("max")]
    kl = last.groupby("arm", sort=False)["kl"].mean()
    base = settings.baseline
    return (
        f"Of the groups trained on, {useful[base]:.0%} are useful under {_title(base, settings)}, most under "
        f"{_title(useful.idxmax(), settings)} ({useful.max():.0%}), fewest under {_title(useful.idxmin(), settings)} "
        f"({useful.min():.0%}). {_title(base, settings)} ends {kl[base]:.3f} nats per token from the base policy; the "
        f"arms from {kl.min():.3f} ({_title(kl.idxmin(), settings)}) to {kl.max():.3f} "
        f"({_title(kl.idxmax(), settings)})."
    )


def _title(arm: str, settings: Settings) -> str:
    return settings.arm(arm).title
