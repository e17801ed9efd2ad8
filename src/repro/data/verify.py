"""Is a response right? math-verify's word, asked in child processes that can neither hang the caller nor bring it down.

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

SECONDS = 5.0  # for one answer; math-verify's own default for parsing alone
MEGABYTES = 2048  # of address space for one child; sympy takes a tenth of it
TAIL = 10_000  # characters of a response that are looked at: the answer stands at its end
JUDGE = "repro.data.verify:math_verify_judge"
INSTALL = "`make extra-verl` installs it"
SCIENTIFIC = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]?\d+)(?![\w.])")  # 4.5e33, as MinervaMath writes powers of ten
_lock, _verifiers = threading.Lock(), []


@dataclass(frozen=True)
class Verdict:
    """Whether a response is right, and what was found: equal, different, no answer (in the response), no truth (that
    can be read), timeout, memory, error, crash. Only `equal` is right."""

    found: str

    @property
    def correct(self) -> bool:
        return self.found == "equal"


class Verifier:
    """`processes` children that judge responses; safe to share between threads. A context manager.

    SandboxFailed at the first response where math-verify is not installed.
    """

    def __init__(self, processes: int = 1, *, seconds: float = SECONDS, megabytes: int = MEGABYTES, judge: str = JUDGE):
        self._all = [Sandbox(judge, seconds=seconds, megabytes=megabytes) for _ in range(processes)]
        self._idle: queue.SimpleQueue[Sandbox] = queue.SimpleQueue()
        for sandbox in self._all:
            self._idle.put(sandbox)

    def check(self, response: str, truth: str) -> Verdict:
        """One response against the answer that goes between the braces of \\boxed{}. Waits for an idle child."""
        sandbox = self._idle.get()
        try:
            answer = sandbox.call(response[-TAIL:], truth)
        finally:
            self._idle.put(sandbox)
        return Verdict(answer.value if answer.outcome == "value" else answer.outcome)

    def check_all(self, responses_N: Sequence[str], truths_N: Sequence[str]) -> list[Verdict]:
        """One verdict for each, in their order; the children share the work."""
        if len(responses_N) != len(truths_N):
            raise ValueError(f"{len(responses_N)} responses and {len(truths_N)} answers: one answer for each is needed")
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
    """Called in the child: math-verify's comparison, as a word of `Verdict`.

    A boxed answer counts before any other and the last one before those above it, but boxes close together count as one
    set of answers; without any, math-verify takes the last formula or number. An answer like 4.5e33, which math-verify
    reads as a product with the letter e, holds as 4.5 · 10³³ too. Its own time limits are off: they need signals, and
    stop nothing inside one long operation.
    """
    try:
        from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
    except ImportError as error:
        raise ImportError(f"math-verify is not installed ({error}): {INSTALL}") from error

    in_truth = [LatexExtractionConfig()]
    in_response = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]

    def judge(response: str, truth: str) -> str:
        wordings = dict.fromkeys((truth, SCIENTIFIC.sub(r"\1 \\times 10^{\2}", truth)))
        gold = [each for one in wordings for each in parse(f"\\boxed{{{one}}}", in_truth, parsing_timeout=None)]
        if not gold:
            return "no truth"
        found = parse(response, in_response, parsing_timeout=None)
        if not found:
            return "no answer"
        return "equal" if verify(gold, found, timeout_seconds=None) else "different"

    return judge


def _shared(processes: int) -> Verifier:
    """The verifier of this process, made at the first call."""
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
    """verl's reward: 1.0 where `solution_str` gives `ground_truth`, else 0.0. verl calls it from many threads, for
    whom `processes` children work (reward.custom_reward_function.reward_kwargs.processes)."""
    return float(_shared(processes).check(solution_str, str(ground_truth)).correct)
