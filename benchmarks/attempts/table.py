"""The outcomes, counted, and as a table of Markdown."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.attempts.attempt import WELL, WRONG, Attempt

HEADS = {"accepted": "nonsense accepted", "refused": "refused, though right"}


def counted(rows: Sequence[tuple[Attempt, str]]) -> dict[str, Any]:
    """{"groups": {group: {outcome: times}}, "right": {why it is rightly accepted: times}}."""
    groups: dict[str, Counter[str]] = {}
    for attempt, outcome in rows:
        groups.setdefault(attempt.group, Counter())[outcome] += 1
    right = Counter(attempt.right for attempt, outcome in rows if outcome == "rightly accepted")
    return {"groups": {group: dict(times) for group, times in groups.items()}, "right": dict(right)}


def table(counts: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown of {kind: what `counted` gave, and `at`, the commit and the day}: a line for each group, and sums; then
    what was rightly accepted, and why."""
    outcomes = [*WELL, *WRONG]
    heads = ["kind", "what was tried", "attempts", *(HEADS.get(name, name) for name in outcomes)]
    lines = ["| " + " | ".join(heads) + " |", "|:--|:--" + "|--:" * (len(heads) - 2) + "|"]
    sums = {kind: Counter() for kind in (*counts, "all")}
    rows = []
    for kind, entry in counts.items():
        for group, times in entry["groups"].items():
            rows.append((kind, group, times))
            sums[kind].update(times)
            sums["all"].update(times)
    rows += [(f"all {kind}" if kind in counts else kind, "", times) for kind, times in sums.items()]
    for kind, group, times in rows:
        shown = [sum(times.values()), *(times.get(name, 0) for name in outcomes)]
        lines.append(f"| {kind} | {group} | " + " | ".join(map(str, shown)) + " |")
    reasons = Counter()
    for entry in counts.values():
        reasons.update(entry["right"])
    lines += ["", "| rightly accepted, since | times |", "|:--|--:|"]
    lines += [f"| {why} | {times} |" for why, times in sorted(reasons.items())]
    lines += ["", "Commits: " + "; ".join(f"{kind} {entry['at']}" for kind, entry in counts.items()) + "."]
    return "\n".join(lines) + "\n"
