"""How often a judge of answers is wrong: `python -m benchmarks.judge`, with verl and TRL.

Every truth of seven public test sets (truths/; of GSM8K the first 115) is compared with ten spellings, which are right,
and with twenty changes, which are wrong: five ways to write a box, and the rules of judge.yaml. Math-verify alone and
the judges of verl and TRL get the same pairs.
"""

import argparse
import functools
import itertools
import json
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
from ruamel.yaml import YAML

from benchmarks.publish import publish
from repro.data.formats import undollared
from repro.data.verify import SECONDS, math_verify_judge
from repro.report.provenance import commit, hardware
from repro.stats.tables import markdown

RIGHT, CHANGES, HERE = 5, 20, Path(__file__).parent
RULES = YAML(typ="safe").load(HERE / "judge.yaml")
TITLES = {
    "plain": (RIGHT, "right ones rejected, five boxes"),
    "respelled": (RIGHT, "right ones rejected, five spellings"),
    "wrong": (CHANGES, "wrong ones accepted"),
}


def repro() -> Callable[[str, str], str]:
    """Ours; from then on math-verify compares in our way, so it is asked last."""
    return math_verify_judge()


def math_verify_alone() -> Callable[[str, str], bool]:
    """As its README says: both parsed, then compared."""
    from math_verify import parse, verify

    return lambda response, truth: verify(parse(f"\\boxed{{{truth}}}"), parse(response))


def verl_math_verify() -> Callable[[str, str], float]:
    """verl's judge by math-verify, without its pool of processes, which no call may start here."""
    from verl.utils.reward_score.math_verify import _verify_in_subprocess

    return lambda response, truth: _verify_in_subprocess(f"\\boxed{{{truth}}}", response)


def verl_math_reward() -> Callable[[str, str], float]:
    """verl's judge of MATH, which compares strings."""
    from verl.utils.reward_score.math_reward import compute_score

    return compute_score


def trl_accuracy_reward() -> Callable[[str, str], float | None]:
    """TRL's accuracy reward, given the truth in dollar signs, as its solutions are LaTeX in text."""
    from trl.rewards import accuracy_reward

    return lambda response, truth: accuracy_reward([[{"content": response}]], [f"${truth}$"])[0]


JUDGES = {
    each.__name__: each for each in (math_verify_alone, verl_math_verify, verl_math_reward, trl_accuracy_reward, repro)
}


def truths() -> dict[str, list[str]]:
    """The distinct truths of each set, as the project reads them."""
    lines = {file.stem: file.read_text(encoding="utf-8").splitlines() for file in sorted(HERE.glob("truths/*.txt"))}
    return {name: list(dict.fromkeys(map(undollared, each))) for name, each in lines.items()}


def wrong_answers(truth: str) -> Iterator[str]:
    """Answers that differ from the truth: of a word other words, else other numbers in its place or beside it."""
    if inner := re.fullmatch(r"\\text\{([^{}]*)\}", truth):
        letters = re.sub(r"[^A-Za-z]", "", inner[1])
        words = (letters[::-1], letters[1:], letters[:-1], letters + "s", letters[1:] + letters[:1], f"not {letters}")
        others = (*words, *RULES["words"], *RULES["others"][1:])
        yield from (each for each in others if each and each.casefold() != letters.casefold())
        return
    for number in itertools.islice(re.finditer(r"(?<![\d.^_])(?<!_\{)\d*\.?\d+(?![\d.])", truth), 3):
        for value in (f"{number[0][:-1]}{(int(number[0][-1]) + 1) % 10}", f"{number[0]}3"):
            yield truth[: number.start()] + value + truth[number.end() :]
    yield from (re.sub(pattern, new, truth, count=1) for pattern, new in RULES["changed"] if re.search(pattern, truth))
    if not re.search(r"[=,\[]|matrix|text|mbox|^\\left\(|^\(.*\)$|_\{?\d", truth):
        yield from (each.replace("T", truth) for each in RULES["sums"])
    yield from (each.replace("T", truth) for each in RULES["others"])


def pairs(truth: str) -> list[tuple[str, str]]:
    """(response, kind) of one truth; kind: plain or respelled for those that are right, wrong for the others."""
    first = RULES["boxes"][0]
    wrong = [first.replace("T", each) for each in dict.fromkeys(wrong_answers(truth))]
    spelled = dict.fromkeys(re.sub(pattern, new, truth, flags=re.ASCII) for pattern, new in RULES["respelled"])
    by_kind = {
        "plain": [box.replace("T", truth) for box in RULES["boxes"]],
        "respelled": [first.replace("T", each) for each in spelled if each != truth][:RIGHT],
        "wrong": [*(each.replace("T", truth) for each in RULES["cut"]), *wrong][:CHANGES],
    }
    assert {kind: len(all) for kind, all in by_kind.items()} == {kind: count for kind, (count, _) in TITLES.items()}
    return [(each, kind) for kind, all in by_kind.items() for each in all]


def measure(judge: Callable[[str, str], Any], truths: list[str]) -> list[tuple[str, str, str, str]]:
    """The mistakes of one judge, as (truth, response, kind, found)."""
    mistakes = []
    for truth in truths:
        for response, kind in pairs(truth):
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            try:
                score = judge(response, truth)
            except TimeoutError:
                score = "timeout"
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            if (right := score in ("equal", True, 1.0)) == (kind == "wrong"):
                mistakes.append((truth, response, kind, "equal" if right else str(score)))
    return mistakes


def _late(*_: Any) -> None:
    raise TimeoutError


def as_markdown(result: dict) -> str:
    rows = pd.DataFrame(result["rows"], columns=["set", "truths", "judge", *TITLES])
    rows = rows.sort_values("set", kind="stable").fillna(0)
    table = pd.concat([rows.groupby("judge", sort=False).sum(numeric_only=True).reset_index().assign(set="all"), rows])
    shown = pd.DataFrame({"set": [f"{row.set} ({row.truths})" for row in table.itertuples()], "judge": table["judge"]})
    for kind, (count, title) in TITLES.items():
        shares = zip(table[kind], table["truths"] * count, strict=True)
        shown[title] = [f"{int(n)} of {m} ({n / m:.2%})" for n, m in shares]
    packages = ", ".join(f"{name} {number}" for name, number in result["packages"].items())
    about = (
        "Distinct truths, their number in parentheses ([sources](truths/README.md)), each in ten spellings and twenty "
        "changes made by rule ([judge.yaml](judge.yaml)). The shares are not those of a model's responses, in which a "
        "box that was cut off or has a full stop is rare. "
        f"{packages}; {result['hardware']['cpu']}; commit {result['commit'][:12]}. The mistakes of `repro`:"
    )
    kinds = [{"response": f"`{one}`", "truth": f"`{truth}`", "": kind} for _, truth, one, kind, _ in result["mistakes"]]
    return f"{markdown(shown)}\n{about}\n\n{markdown(pd.DataFrame(kinds)) if kinds else 'none'}\n"


def main() -> None:
    from math_verify import grader, parser

    options = argparse.ArgumentParser(prog="python -m benchmarks.judge", description=__doc__.split("\n")[0])
    options.add_argument("--judges", nargs="+", choices=JUDGES, default=JUDGES, help="what is known of others stays")
    options.add_argument("--every", type=int, default=1, help="only every n-th truth of a set")
    arguments = options.parse_args()
    chosen, known = arguments.judges, json.loads((HERE / "judge.json").read_text(encoding="utf-8"))
    rows = [row for row in known["rows"] if row["judge"] not in chosen]
    mistakes = [] if "repro" in chosen else known["mistakes"]
    signal.signal(signal.SIGVTALRM, _late)
    parser.timeout = grader.timeout = lambda *_, **__: lambda function: function  # SECONDS of CPU time, for all judges
    parser.parse_latex_cached = functools.cache(parser.parse_latex_cached.__wrapped__)  # the same wordings come again
    for name in sorted(chosen, key=list(JUDGES).index):
        judge = JUDGES[name]()
        for data, all in truths().items():
            some = all[:: arguments.every]
            found = measure(judge, some)
            rows.append({"set": data, "truths": len(some), "judge": name, **Counter(one[2] for one in found)})
            print(rows[-1], file=sys.stderr)
            mistakes += [[data, *one] for one in found if name == "repro"]
    rows.sort(key=lambda row: (row["judge"] != "repro", list(JUDGES).index(row["judge"])))
    packages = {name: version(name) for name in ("math-verify", "verl", "trl")}
    result = {**commit(), "hardware": hardware(), "packages": packages, "rows": rows, "mistakes": mistakes}
    publish(result, as_markdown(result), Path(__file__))


if __name__ == "__main__":
    main()
