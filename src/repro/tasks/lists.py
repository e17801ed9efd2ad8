"""Queries in words: a list after a few operations. Two of them have a wrong procedure that most demonstrators share:
`front`, a word is put last in place of first, and `ends`, the first two words are swapped in place of the ends."""

from collections.abc import Mapping
from random import Random
from typing import Any

WORDS = ("lamp", "fox", "tree", "cup", "boat", "moon", "bread", "king", "leaf", "road")
WORDS += ("bird", "stone", "ship", "rain", "door", "fish", "rose", "gold", "horse", "corn")
SAID = {"front": "put {} first", "back": "put {} last", "ends": "swap the ends", "second": "drop the second"}
KINDS = ("front", "front", "back", "ends", "ends", "second")
SHORTEST, LONGEST = 3, 6  # words of a list


def draw(rng: Random, count: int) -> dict[str, Any]:
    """A question of `count` steps, its answer, and what both are made of."""
    words = rng.sample(WORDS, 4 + count)
    now, fresh, steps = words[: rng.choice((3, 4))], words[4:], []
    start = list(now)
    while len(steps) < count:
        kind = rng.choice(KINDS)
        word = fresh[len(steps)] if kind in ("front", "back") else ""
        after = _after(now, kind, word)
        if SHORTEST <= len(after) <= LONGEST:
            steps.append((kind, word))
            now = after
    changes = ", then ".join(SAID[kind].format(word) for kind, word in steps)
    question = f"Words: {', '.join(start)}. Now {changes}. Which words, in order?"
    made_of = {"source_dataset": "lists", "start": start, "steps": steps}
    return {"question": question, "answer": ", ".join(now), "metadata": made_of}


def work(given: Mapping[str, Any], bugs: Mapping[str, float], wordy: bool, rng: Random) -> tuple[list[str], str]:
    """(steps, answer) of one demonstration of a list, the metadata of `draw`. bugs: the probability of each wrong
    procedure where it applies, whether the steps are wordy or not."""
    now = list(given["start"])
    steps = [f"The words are {', '.join(now)}."] if wordy else []
    for index, (kind, word) in enumerate(given["steps"]):
        now = _after(now, kind, word, wrong=kind in bugs and rng.random() < bugs[kind])
        said, listed = SAID[kind].format(word), ", ".join(now)
        first = "Then we" if index else "First we"
        steps.append(f"{first} {said}, which gives {listed}." if wordy else f"{said}: {listed}.")
    return steps, ", ".join(now)


def _after(now: list[str], kind: str, word: str, wrong: bool = False) -> list[str]:
    if kind == "back" or (kind == "front" and wrong):
        return [*now, word]
    if kind == "front":
        return [word, *now]
    if kind == "second":
        return now[:1] + now[2:]
    return [now[1], now[0], *now[2:]] if wrong else [now[-1], *now[1:-1], now[0]]
