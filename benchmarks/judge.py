r"""How often a judge of answers is wrong: `python -m benchmarks.judge [--more FILE]`, with verl and TRL.

Truths of public test sets (judge_truths.json: distinct ones whose licence permits to keep them here; FILE has more, as
{set: [truth, …]}) against ten spellings, which are right, and twenty changes, which are wrong. Our judge was mended for
five of the spellings, so they are counted apart. Math-verify alone and the judges of verl and TRL get the same pairs.
"""

import argparse
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.publish import publish
from repro.data.verify import JUDGE, Verifier
from repro.report.provenance import commit, hardware
from repro.stats.tables import markdown

CHANGES, OURS, HERE = 20, "repro", Path(__file__).parent
PLAIN = (  # T: the truth
    r"So the answer is $\boxed{T}$.",
    "Step 3: simplify.\n\n\\[\n\\boxed{ T }\n\\]",
    "**Final Answer**\n\n$$\\boxed{T}$$",
    r"The final answer is: $\boxed{T}$. I hope it is correct.",
    r"I thought of \boxed{12345}, but that is not what was asked, and the sum must be taken once more. It is \boxed{T}",
)
MENDED = (
    r"So the answer is $\boxed{T.}$",
    r"So the answer is \boxed{$T$}.",
    r"So the answer is $\boxed{**T**}$.",
    r"So the answer is $\boxed{\textcolor{blue}{T}}$.",
    r"First I had \boxed{12345}, which is wrong. In the end: \boxed{T}",
)
CUT = (  # wrong, since they were cut off, give no answer, or take it back
    r"First \boxed{T}. No, it is \boxed{T",
    r"It is T, so the answer is \boxed{}",
    r"First \boxed{T}, which is wrong. In the end the answer must be this one: \boxed{98765}",
)
SUMS = ("T+1", "T-10^{-3}", "98765=T", r"T+\sqrt{2}", "T+x+98765")  # of a truth that is one number or formula
OTHERS = ("T, 98765", "98765", r"\text{no solution}", r"\frac{98765}{4321}", "98765x", r"98765\%", "(98765, 1)")
OTHERS += (r"\{98765\}", r"98765\pi", "-98765", "x=98765", r"\infty", "0.98765", "98766", "x > 98765", "[0, 98765)")
OTHERS += (r"98765\text{ cm}", "98765_8", "98765i", "1.98765", r"\sqrt{98765}")
WORDS = ("no", "neither", "west", "odd", "Carla", "Debra", "none", "all", "A", "D", "F", "G", "Q", "0", "7", "98765")
JUDGES = {
    OURS: JUDGE,
    "math-verify alone": "benchmarks.judge:math_verify_alone",
    "verl, math_verify": "benchmarks.judge:verl_math_verify",
    "verl, math_reward": "benchmarks.judge:verl_math",
    "TRL, accuracy_reward": "benchmarks.judge:trl_accuracy",
}


def math_verify_alone() -> Callable[[str, str], str]:
    """As its README says: both parsed, then compared."""
    from math_verify import parse, verify

    def judge(response: str, truth: str) -> str:
        gold = parse(f"\\boxed{{{truth}}}", parsing_timeout=None)
        return _found(verify(gold, parse(response, parsing_timeout=None), timeout_seconds=None))

    return judge


def verl_math_verify() -> Callable[[str, str], str]:
    """verl's judge by math-verify, without its pool of processes, which no call may start here."""
    from verl.utils.reward_score.math_verify import _verify_in_subprocess

    return lambda response, truth: _found(_verify_in_subprocess(f"\\boxed{{{truth}}}", response))


def verl_math() -> Callable[[str, str], str]:
    """verl's judge of MATH, which compares strings."""
    from verl.utils.reward_score.math_reward import compute_score

    return lambda response, truth: _found(compute_score(response, truth))


def trl_accuracy() -> Callable[[str, str], str]:
    """TRL's accuracy reward, given the truth in dollar signs, as its solutions are LaTeX in text."""
    from trl.rewards import accuracy_reward

    return lambda response, truth: _found(accuracy_reward([[{"content": response}]], [f"${truth}$"])[0])


def _read(path: str | Path) -> dict[str, Any]:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def _found(score: Any) -> str:
    return "equal" if score is not None and float(score) == 1.0 else "different"


def wrong_answers(truth: str) -> Iterator[str]:
    """Answers that differ from the truth: of a word other words, else other numbers in its place or beside it."""
    if inner := re.fullmatch(r"\\text\{([^{}]*)\}", truth):
        letters = re.sub(r"[^A-Za-z]", "", inner[1])
        words = (letters[::-1], letters[1:], letters[:-1], letters + "s", letters[1:] + letters[:1], f"not {letters}")
        yield from (each for each in (*words, *WORDS, *OTHERS[1:]) if each and each.casefold() != letters.casefold())
        return
    for number in itertools.islice(re.finditer(r"(?<![\d.^])\d+(?![\d.])", truth), 3):
        for value in (int(number[0]) + 1, 10 * int(number[0]) + 3):
            yield truth[: number.start()] + str(value) + truth[number.end() :]
    if re.fullmatch(r"[\d.]*[1-9][\d.]*|\\d?frac\{\d+\}\{\d+\}", truth):
        yield f"-{truth}"
    if not re.search(r"[=,\[]|matrix|text|mbox|^\\left\(|^\(.*\)$|_\{?\d", truth):
        yield from (each.replace("T", truth) for each in SUMS)
    yield from (each.replace("T", truth) for each in OTHERS)


def pairs(truth: str) -> list[tuple[str, str]]:
    """(response, kind) of one truth; kind: plain or mended for those that are right, wrong for the others."""
    wrong = [PLAIN[0].replace("T", each) for each in dict.fromkeys(wrong_answers(truth))]
    changed = [*(each.replace("T", truth) for each in CUT), *wrong][:CHANGES]
    assert len(changed) == CHANGES, truth
    right = [(each.replace("T", truth), kind) for kind, all in (("plain", PLAIN), ("mended", MENDED)) for each in all]
    return [*right, *((each, "wrong") for each in changed)]


def measure(sets: dict[str, list[str]]) -> tuple[list[dict], list[list[str]]]:
    """Mistakes by kind, a row for each set and judge, and our judge's as [set, truth, response, found]."""
    rows, ours = [], []
    for judge, factory in JUDGES.items():
        with Verifier(2, judge=factory) as verifier:
            for name, truths in sets.items():
                asked = [(truth, *pair) for truth in truths for pair in pairs(truth)]
                verdicts = verifier.check_all([each[1] for each in asked], [each[0] for each in asked])
                found = [(*each, got.found) for each, got in zip(asked, verdicts, strict=True)]
                mistakes = [each for each in found if (each[3] == "equal") == (each[2] == "wrong")]
                rows.append(
                    {"set": name, "truths": len(truths), "judge": judge, **Counter(each[2] for each in mistakes)}
                )
                ours += [[name, truth, response, got] for truth, response, _, got in mistakes if judge == OURS]
    return rows, ours


def as_markdown(result: dict) -> str:
    titles = {
        "plain": (len(PLAIN), "right ones rejected, plain spellings"),
        "mended": (len(MENDED), "right ones rejected, spellings that ours was mended for"),
        "wrong": (CHANGES, "wrong ones accepted"),
    }
    table = pd.DataFrame(result["rows"]).sort_values("set", kind="stable").fillna(0)
    shown = pd.DataFrame({"set": [f"{row.set} ({row.truths})" for row in table.itertuples()], "judge": table["judge"]})
    for kind, (count, title) in titles.items():
        shown[title] = [
            f"{int(n)} of {m} ({n / m:.1%})" for n, m in zip(table[kind], table["truths"] * count, strict=True)
        ]
    named = [f"`{response}` for `{truth}`" for _, truth, response, _ in result["mistakes"][:12]]
    packages = ", ".join(f"{name} {number}" for name, number in result["packages"].items())
    about = (
        "Truths (their number in parentheses) in spellings and changes that were made by rule, so the shares are not "
        "those of a model's responses: a full stop, bold or colour in a box is rare there, as is a box that was cut "
        "off. The last two columns flatter our judge, which was mended for what they ask. Its mistakes, the first "
        f"{len(named)} of {len(result['mistakes'])}: {'; '.join(named) or 'none'}. {packages}; "
        f"{result['hardware']['cpu']}; commit {result['commit'][:12]}."
    )
    return f"{markdown(shown)}\n{about}\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judge", description=__doc__.split("\n")[0])
    parser.add_argument("--more", type=_read, default={}, help="a JSON file of further truths, {set: [truth, …]}")
    chosen = parser.parse_args()
    sets = {name: each["truths"] for name, each in _read(HERE / "judge_truths.json").items()} | chosen.more
    with chdir(HERE):  # a judge's child cannot import from the working directory
        rows, mistakes = measure(sets)
    packages = {name: version(name) for name in ("math-verify", "verl", "trl")}
    result = {**commit(), "hardware": hardware(), "packages": packages, "rows": rows, "mistakes": mistakes}
    publish(result, as_markdown(result), Path(__file__))


if __name__ == "__main__":
    main()
