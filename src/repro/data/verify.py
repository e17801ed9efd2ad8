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

from repro.data.sandbox import Sandbox
from repro.errors import Refused

SECONDS = 5.0  # per answer; math-verify's own default is for parsing only
MEGABYTES = 2048  # address space of one child; sympy takes a tenth of it
TAIL = 10_000  # characters of a response that are examined: the answer comes at its end
JUDGE = "repro.data.verify:math_verify_judge"
INSTALL = "`make extra-verl` installs it"
SCIENTIFIC = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]?\d+)(?![\w.])")  # 4.5e33, as MinervaMath writes powers of ten
KINDS = (  # of answers: math-verify's grammar is slow for each that a process sees first
    "7",
    "-0.5",
    "1,242",
    "\\frac{1}{2}",
    "\\frac{3\\sqrt{2}}{5}",
    "2\\pi",
    "x^2+2x+1",
    "(3, \\frac{\\pi}{2})",
    "2, -7",
    "\\{1, 2\\}",
    "[0, 1)",
    "(-\\infty, 3] \\cup (7, \\infty)",
    "\\text{Evelyn}",
    "\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}",
    "4.5 \\times 10^{33}",
    "120^\\circ",
    "50\\%",
    "y = 2x + 1",
    "x \\ge 3",
    "\\binom{10}{3}",
    "\\log_2 8",
    "3 + 4i",
    "e^{2}",
    "5!",
    "\\sqrt[3]{4}",
    "\\sin 30^\\circ",
    "14.7 \\text{ inches}",
    "\\sum_{k=1}^n k",
)
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
    """Called in the child: math-verify's comparison, as a value of `Verdict.found`; it has seen an answer of each kind.

    Boxed answers take precedence over others and the last one over earlier ones, but adjacent boxes count as one set of
    answers; without any, math-verify takes the last formula or number. An answer like 4.5e33, which math-verify parses
    as a product with the letter e, is also accepted as 4.5 · 10³³. Its own time limits are off: they need signals, and
    cannot interrupt a single long operation.
    """
    try:
        from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
    except ImportError as error:
        raise NoVerifier(f"math-verify is not installed ({error}): {INSTALL}") from error

    in_truth = [LatexExtractionConfig()]
    in_response = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]

    def judge(response: str, truth: str) -> str:
        wordings = dict.fromkeys((truth, SCIENTIFIC.sub(r"\1 \\times 10^{\2}", truth)))
        gold = [each for one in wordings for each in parse(f"\\boxed{{{one}}}", in_truth, parsing_timeout=None)]
        if not gold:
            return "no truth"
        answers = parse(response, in_response, parsing_timeout=None)
        if not answers:
            return "no answer"
        return "equal" if verify(gold, answers, timeout_seconds=None) else "different"

    for kind in KINDS:
        for answer in ("7", kind):
            judge(f"So \\boxed{{{answer}}}.", kind)
    judge.rehearse = lambda: judge("So \\boxed{8}.", "7")
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
