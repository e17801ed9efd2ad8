"""How long runs that are missing take, from those that are there."""

from functools import cache

from repro.runs.key import Asked
from repro.stats import panels

PANEL = "default"  # whose runs are the measure


def seconds_of(asked: Asked) -> float:
    """As long for each rollout and token that it may take as runs of panel PANEL."""
    engine, share = asked.settings.engine_of(asked.arm), 1.0
    if engine.stop_gflops and (bill := asked.settings.evaluation.bill_gflops):
        share = engine.stop_gflops / bill
    return _each() * engine.steps * engine.rollouts_per_step * engine.max_new_tokens * share


@cache
def _each() -> float:
    """Seconds for a rollout and a token of the longest response allowed."""
    seconds, steps = panels.load("seconds", PANEL), panels.load("steps", PANEL)
    whole, rollouts = seconds.groupby("run")["seconds"].sum(), steps.groupby("run")["rollouts"].max()
    return float((whole / rollouts).median() / panels.engine_of(PANEL)["max_new_tokens"])
