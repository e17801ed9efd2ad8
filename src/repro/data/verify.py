"""Is a response correct? math-verify's verdict, in child processes that can neither hang nor crash the caller.

verl calls `compute_score`: reward.custom_reward_function.path=pkg://repro.data.verify and its name=compute_score.
"""

import atexit
import queue
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from repro.data.answers import alike, boxed, cleaned, is_text, same_base, same_text, squeezed, symbols, unboxed
from repro.data.sandbox import Sandbox
from repro.errors import Refused

SECONDS = 5.0  # per answer; math-verify's own default is for parsing only
MEGABYTES = 2048  # address space of one child; sympy takes a tenth of it
TAIL = 10_000  # characters of a response that are examined: the answer comes at its end
JUDGE = "repro.data.verify:math_verify_judge"
INSTALL = "`make extra-verl` installs it"
SCIENTIFIC = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]?\d+)(?![\w.])")  # 4.5e33, as MinervaMath writes powers of ten
# Of answers: math-verify's grammar is slow for each that a process sees first.
# fmt: off
KINDS = (
    "7", "-0.5", "1,242", r"\frac{1}{2}", r"\frac{3\sqrt{2}}{5}", r"2\pi", "x^2+2x+1", r"(3, \frac{\pi}{2})", "2, -7",
    r"\{1, 2\}", "[0, 1)", r"(-\infty, 3] \cup (7, \infty)", r"\text{(E)}", "5!", r"\log_2 8", "3 + 4i", "e^{2}",
    r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"4.5 \times 10^{33}", r"120^\circ", "y = 2x + 1", r"x \ge 3",
    r"\binom{10}{3}", r"\sqrt[3]{4}", r"\sin 30^\circ", r"14.7 \text{ inches}", r"\sum_{k=1}^n k",
)
# fmt: on
_lock, _verifiers = threading.Lock(), []


class NoVerifier(Refused, ImportError):
    """One sentence: what the checker of answers lacks."""


@dataclass(frozen=True)
class Verdict:
    """The result for one response, `found`: equal, different, no answer (in the response), no truth (that can be
    parsed), timeout, memory, error, crash. Only `equal` is correct."""

    found: str

    @property
    def correct(self) -> bool:
        return self.found == "equal"


class Verifier:
    """`processes` children that judge responses; safe to share between threads. A context manager.

    SandboxFailed at the first response if math-verify is not installed.
    """

    def __init__(self, processes: int = 1, *, seconds: float = SECONDS, megabytes: int = MEGABYTES, judge: str = JUDGE):
        self._all = [Sandbox(judge, seconds=seconds, megabytes=megabytes) for _ in range(processes)]
        self._idle: queue.SimpleQueue[Sandbox] = queue.SimpleQueue()
        for sandbox in self._all:
            self._idle.put(sandbox)

    def check(self, response: str, truth: str) -> Verdict:
        """Compare one response with the answer, the content of \\boxed{}. Waits for an idle child."""
        sandbox = self._idle.get()
        try:
            answer = sandbox.call(response[-TAIL:], truth)
        finally:
            self._idle.put(sandbox)
        return Verdict(answer.value if answer.outcome == "value" else answer.outcome)

    def check_all(self, responses_N: Sequence[str], truths_N: Sequence[str]) -> list[Verdict]:
        """One verdict for each response, in order; the children share the work."""
        if len(responses_N) != len(truths_N):
            raise ValueError(f"{len(responses_N)} responses and {len(truths_N)} answers: give one answer per response")
        with ThreadPoolExecutor(len(self._all)) as pool:
            return list(pool.map(self.check, responses_N, truths_N))

    def close(self) -> None:
        """End the children."""
        for sandbox in self._all:
            sandbox.close()

    def __enter__(self) -> "Verifier":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


def math_verify_judge() -> Callable[[str, str], str]:
    """Called in the keeper: math-verify's comparison, a value of `Verdict.found`; it has seen an answer of each kind.

    The last box is the answer, adjacent ones are one set of answers, and a last box that is empty or cut off is no
    answer. Without a box, math-verify takes the last formula or number after "answer is", or else of all. An answer
    like 4.5e33, which it parses as a product with the letter e, is also read as 4.5 · 10³³. Its own time limits are
    off: they need signals, and cannot interrupt a single long operation.
    """
    try:
        from math_verify import ExprExtractionConfig, LatexExtractionConfig, grader, parse, verify

        from repro.data import tolerance
    except ImportError as error:
        raise NoVerifier(f"math-verify is not installed ({error}): {INSTALL}") from error
    grader.sympy_numeric_eq = tolerance.equal  # which the comparisons of sets, intervals and matrices call as well
    grader.sympy_symbolic_eq = tolerance.same_formula

    latex, anywhere = [LatexExtractionConfig()], [LatexExtractionConfig(), ExprExtractionConfig()]

    def read(answer: str) -> list:
        if not answer:
            return []
        wordings = dict.fromkeys((symbols(answer), SCIENTIFIC.sub(r"\1 \\times 10^{\2}", symbols(answer))))
        found = [each for one in wordings for each in parse(f"\\boxed{{{one}}}", latex, parsing_timeout=None)]
        return [tolerance.undifferentiated(each) for each in found]

    def said(response: str) -> list:
        found = (parse(each, anywhere, parsing_timeout=None) for each in unboxed(response))
        return next(filter(None, found), [])

    def judge(response: str, truth: str) -> str:
        box = boxed(response)
        right, answer = alike(cleaned(boxed(rf"\boxed{{{truth}}}") or ""), cleaned(box or ""))
        if not (gold := read(right)):
            return "no truth"
        answers = said(response) if box is None else read(answer)
        if not answers:
            return "no answer"
        answer = answer or cleaned(str(answers[-1]))
        answers = [each for each in answers if not tolerance.untrue(each, "=" in right)]
        same = squeezed(answer) == squeezed(right) or same_base(right, answer)
        if same is None and is_text(right):
            same = same_text(right, answer)
        elif same is None:
            same = verify(gold, answers, timeout_seconds=None, allow_set_relation_comp=True)
        return "equal" if same else "different"

    judge("The answer is $7$.", "7")
    for kind in KINDS:
        for answer in ("7", kind):
            judge(f"So \\boxed{{{answer}}}.", kind)
    return judge


def _shared(processes: int) -> Verifier:
    """The verifier of this process, created at the first call."""
    with _lock:
        if not _verifiers:
            _verifiers.append(Verifier(processes))
            atexit.register(_verifiers[0].close)
        return _verifiers[0]


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    processes: int = 1,
    **others: Any,
) -> float:
    """verl's reward: 1.0 if `solution_str` gives `ground_truth`, else 0.0. verl calls it from many threads, which share
    `processes` children (reward.custom_reward_function.reward_kwargs.processes)."""
    return float(_shared(processes).check(solution_str, str(ground_truth)).correct)
