"""Which runs a machine may make: all arms of a seed run on one kind of CPU, since on another they have other bits."""

from collections.abc import Callable, Sequence

from repro import paths
from repro.machine import hardware
from repro.runs.design import Cell, Design
from repro.stats import panels


def of_this_cpu(design: Design, of: Sequence[Cell], say: Callable = print) -> list[Cell]:
    """The cells without those of a seed and base policy of which another kind of CPU has made runs in that panel, and
    without those of a panel that repeats what this kind of CPU has made. Says how many of a panel are left out."""
    cpu, made = hardware()["cpu"], _cpus()
    kept = []
    for cell in of:
        repeated = design.panels[cell.panel].repeats
        theirs = made.get((cell.panel, cell.policy, cell.seed), set()) - {cpu}
        ours = repeated is not None and cpu in made.get((repeated, cell.policy, cell.seed), set())
        if not theirs and not ours:
            kept.append(cell)
    for panel in dict.fromkeys(cell.panel for cell in of):
        if left := sum(cell.panel == panel for cell in of) - sum(cell.panel == panel for cell in kept):
            say(f"{left} runs of {panel} are left to another kind of CPU than {cpu}")
    return kept


def _cpus() -> dict[tuple[str, str, int], set[str]]:
    """(panel, policy, seed) → the kinds of CPU that have made its runs."""
    runs = panels.load("runs", root=paths.PANELS)
    if not len(runs):
        return {}
    return runs.groupby(["panel", "policy", "seed"])["cpu"].agg(set).to_dict()
