"""The outcomes, counted, and as a table of Markdown."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.attempts.attempt import WELL, WRONG, Attempt

HEADS = {"accepted": "nonsense accepted", "refused": "refused, though right"}


def counted(rows: Sequence[tuple[Attempt, str]]) -> dict[str, dict[str, int]]:
    """`outcomes`: {outcome: times}; `right`: {why something was rightly accepted: times}."""
    right = Counter(attempt.right for attempt, outcome in rows if outcome == "rightly accepted")
    return {"outcomes": Counter(outcome for _, outcome in rows), "right": right}


def table(counts: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Markdown of {kind: {group: what `counted` gave, and `at`, the commit and the day}}: a line for each group, and
    sums; then what was rightly accepted, and why."""
    outcomes = [*WELL, *WRONG]
    heads = ["kind", "what was tried", "attempts", *(HEADS.get(name, name) for name in outcomes)]
    lines = ["| " + " | ".join(heads) + " |", "|:--|:--" + "|--:" * (len(heads) - 2) + "|"]
    rows = [(kind, group, entry["outcomes"]) for kind, groups in counts.items() for group, entry in groups.items()]
    rows += [(f"all {kind}", "", _sum(groups.values(), "outcomes")) for kind, groups in counts.items()]
    every = [entry for groups in counts.values() for entry in groups.values()]
    rows.append(("all", "", _sum(every, "outcomes")))
    for kind, group, times in rows:
        shown = [sum(times.values()), *(times.get(name, 0) for name in outcomes)]
        lines.append(f"| {kind} | {group} | " + " | ".join(map(str, shown)) + " |")
    lines += ["", "| rightly accepted, since | times |", "|:--|--:|"]
    lines += [f"| {why} | {times} |" for why, times in sorted(_sum(every, "right").items())]
    made = Counter(entry["at"] for entry in every)
    commits = [f"{at} ({times} group{'s' * (times > 1)})" for at, times in made.items()]
    lines += ["", f"Commits: {'; '.join(commits)}."]
    return "\n".join(lines) + "\n"


def _sum(entries: Iterable[Mapping[str, Any]], name: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for entry in entries:
        total.update(entry[name])
    return total
