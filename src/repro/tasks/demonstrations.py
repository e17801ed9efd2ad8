"""Demonstrations for pre-training: a mixture of styles, some of them wrong.

Reinforcement learning needs a base policy with substantial entropy; an almost deterministic one does not improve at
all (docs/LOG.md). So each demonstration is drawn from a mixture: a direct answer, worked steps, or wordy steps; each
step has an error with a fixed probability (a sixteenth of it if there is one step, so that some queries are trivial).
The style is independent of the query, so lengths within a group differ by a factor of two or more, and errors are
equally likely in worked and wordy steps, so length by itself neither helps nor hurts.

There are two kinds of error. A *slip* is a near miss by chance: a policy that imitates slips answers right greedily,
and training can only sharpen it. A *bug* is a wrong procedure that most demonstrations share (the procedural bugs of
Brown and Burton, 1978): a policy that imitates bugs is wrong greedily and holds the right procedure as a minority, so
that a reward can overrule what imitation learnt."""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from repro.tasks.queries import END_OF_STEPS, WORDED, Query
from repro.tasks.tokenizer import check_symbols


@dataclass(frozen=True)
class Mixture:
    """Shares of the styles (the rest is worked steps) and the error probabilities. bugs: {wrong procedure: probability
    that a step to which it applies is done by it}; see `_wrongly_added`, `_gcd_steps` and the modules of queries in
    words. again: whether a wordy step of a sum is turned round as well as undone."""

    direct: float
    wordy: float
    slip_per_step: float
    slip_direct: float
    bugs: Mapping[str, float] = field(default_factory=dict)
    again: bool = True


def demonstrate(query: Query, mixture: Mixture, rng: random.Random) -> str:
    """One response to `query` in a random style, with random errors; ends in `#answer`. UnknownSymbol if it holds a
    symbol that the small policy's tokenizer lacks, and its query is not in words."""
    dataset, style = query.entry["metadata"]["source_dataset"], rng.random()
    direct, wordy = style < mixture.direct, style < mixture.direct + mixture.wordy
    if dataset in WORDED:  # a direct answer is what the steps, and their bugs, would have led to
        steps, answer = WORDED[dataset].work(query.entry["metadata"], mixture.bugs, wordy, rng)
        return " ".join(["", *([] if direct else steps), f"{END_OF_STEPS} {answer}"])  # each word with its space
    response = END_OF_STEPS + _direct(query, mixture, rng) if direct else _worked(query, dataset, mixture, wordy, rng)
    check_symbols([response])
    return response


def _worked(query: Query, dataset: str, mixture: Mixture, wordy: bool, rng: random.Random) -> str:
    worked = {"chain_sum": _sum_steps, "products": _product_steps, "gcd": _gcd_steps}[dataset]
    steps, answer = worked(query, mixture, rng, wordy)
    return ";".join(steps) + END_OF_STEPS + answer


def _slip(value: int, probability: float, rng: random.Random) -> int:
    """`value`, or with the given probability a near miss of it."""
    return value + rng.choice((-10, -2, -1, 1, 2, 10)) if rng.random() < probability else value


def _direct(query: Query, mixture: Mixture, rng: random.Random) -> str:
    """An answer without steps: the more digits the prompt has, the more likely it is a guess."""
    digits = sum(symbol.isdigit() for symbol in query.prompt)
    miss = 1.0 - (1.0 - mixture.slip_direct) ** max(0, digits - 2)
    return str(_slip(int(query.answer), miss, rng))


def _wrongly_added(total: int, term: int) -> tuple[str, int] | None:
    """(bug, result) of a step `total + term` that has a wrong procedure; None of one that has none. sign: it is lost on
    the way through zero (3−7=4); carry: it is dropped (7+8=5); borrow: the smaller digit is taken from the larger
    (12−5=13)."""
    result, ones, digit = total + term, abs(total) % 10, abs(term)
    if total * result < 0 or (total == 0 and result < 0):
        return "sign", -result
    sign, tens = (-1 if min(total, result) < 0 else 1), abs(total) - ones
    if abs(result) > abs(total) and ones + digit >= 10:
        return "carry", sign * (tens + (ones + digit) % 10)
    if abs(result) < abs(total) and ones < digit:
        return "borrow", sign * (tens + digit - ones)
    return None


def _added(total: int, term: int, mixture: Mixture, rng: random.Random) -> int:
    """`total + term`, by a wrong procedure as often as the mixture has it."""
    wrong = _wrongly_added(total, term) if mixture.bugs else None
    if wrong and rng.random() < mixture.bugs.get(wrong[0], 0.0):
        return wrong[1]
    return total + term


def _sum_steps(query: Query, mixture: Mixture, rng: random.Random, wordy: bool) -> tuple[list[str], str]:
    """Running sums. Wordy: each step first restates the running total, then is turned round, and undone."""
    slip = mixture.slip_per_step
    terms = re.findall(r"[+-]?\d+", query.prompt)
    total, steps = int(terms[0]), []
    for term in terms[1:]:
        result = _slip(_added(total, int(term), mixture, rng), slip if len(terms) > 2 else slip / 16, rng)
        if wordy:
            undone = f"-{term[1:]}" if term[0] == "+" else f"+{term[1:]}"
            turned = [f"{term}+{total}={result}"] if mixture.again else []
            steps += [f"{total}={total}{term}={result}", *turned, f"{result}{undone}={total}"]
        else:
            steps.append(f"{total}{term}={result}")
        total = result
    return steps, str(total)


def _product_steps(query: Query, mixture: Mixture, rng: random.Random, wordy: bool) -> tuple[list[str], str]:
    """Long multiplication by the second factor's digits."""
    slip = mixture.slip_per_step
    left, right = (int(number) for number in re.findall(r"\d+", query.prompt))
    if left < 10 and right < 10:
        steps = [f"{right}*{left}={left * right}"] if wordy else []
        return steps, str(_slip(left * right, slip / 16, rng))
    parts, total = [], 0
    for digit, power in zip(str(right), range(len(str(right)) - 1, -1, -1), strict=True):
        part = _slip(left * int(digit) * 10**power, slip, rng)
        parts.append(f"{left}*{int(digit) * 10**power}={part}")
        total += part
    return (parts + parts[-1:] if wordy else parts), str(_slip(total, slip, rng))


def _gcd_steps(query: Query, mixture: Mixture, rng: random.Random, wordy: bool) -> tuple[list[str], str]:
    """Euclid's remainders. Wordy: every pair is written in both orders. Bug `stop`: a remainder is taken for the last
    one."""
    slip, stop = mixture.slip_per_step, mixture.bugs.get("stop", 0.0)
    a, b = (int(number) for number in re.findall(r"\d+", query.prompt))
    a, b = max(a, b), min(a, b)
    steps = []
    while b:
        steps.append(f"{b},{a};{a},{b}" if wordy else f"{a},{b}")
        a, b = b, max(0, _slip(a % b, slip / 2, rng)) % b
        if stop and b and rng.random() < stop:
            return steps, str(b)
    return steps, str(a)
