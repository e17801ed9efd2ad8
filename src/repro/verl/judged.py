"""Verdicts on samples of a profile by what judges in training: math-verify, or a reward function of one's own."""

import asyncio
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from repro.data.verify import Verifier
from repro.settings import SettingsError

VERIFIERS = 4  # child processes next to each engine
OURS = "pkg://repro.data.verify"  # configs/verl/repro_trainer.yaml names it

Verdicts = Callable[[Sequence[str], Sequence[Mapping[str, Any]]], list[bool]]


@contextmanager
def judge(reward: Mapping[str, Any] | None) -> Iterator[Verdicts]:
    """correct_N of responses to rows in verl's format. `reward`: verl's `reward.custom_reward_function`, None for
    math-verify. As in repro.verl.reward, a response is correct by the function's own `acc`, or if its score is 1."""
    if reward is not None:
        yield _Own(reward)
        return
    with Verifier(VERIFIERS) as verifier:

        def verdicts(texts_N: Sequence[str], rows_N: Sequence[Mapping[str, Any]]) -> list[bool]:
            truths_N = [str(row["reward_model"]["ground_truth"]) for row in rows_N]
            return [verdict.correct for verdict in verifier.check_all(texts_N, truths_N)]

        yield verdicts


class _Own:
    """A reward function of one's own, called as verl's trainer calls it; SettingsError where it fails."""

    def __init__(self, reward: Mapping[str, Any]):
        from omegaconf import OmegaConf
        from verl.trainer.ppo.reward import get_custom_reward_fn

        self.name = f"{reward['path']}: {reward['name']}"
        try:
            self.function = get_custom_reward_fn(OmegaConf.create({"reward": {"custom_reward_function": dict(reward)}}))
        except Exception as error:  # whatever the user's file does when it is loaded
            raise SettingsError(f"{self.name} cannot be loaded ({_why(error)}): mend the file") from error

    def __call__(self, texts_N: Sequence[str], rows_N: Sequence[Mapping[str, Any]]) -> list[bool]:
        return [self._correct(text, row) for text, row in zip(texts_N, rows_N, strict=True)]

    def _correct(self, text: str, row: Mapping[str, Any]) -> bool:
        given = {"data_source": row["data_source"], "solution_str": text, "extra_info": row["extra_info"]}
        with asked_of(self.function, row["prompt"][-1]["content"]):
            score = self.function(**given, ground_truth=row["reward_model"]["ground_truth"])
            return scored(asyncio.run(score) if inspect.iscoroutine(score) else score)[1] == 1.0


def scored(given: Any) -> tuple[float, float]:
    """(score, acc) of what a reward function returned: a number, or a dict with `score` and perhaps `acc`, as verl's
    managers take it, which is whether the score is 1 if the function does not say. ValueError for what is no number."""
    told = given if isinstance(given, Mapping) else {"score": given}
    if (score := told["score"]) is None or not math.isfinite(score := float(score)):
        raise ValueError(f"its score is {score}")
    if not math.isfinite(accuracy := float(score == 1.0 if told.get("acc") is None else told["acc"])):
        raise ValueError(f"its acc is {accuracy}")
    return score, accuracy


@contextmanager
def asked_of(function: Callable, question: str) -> Iterator[None]:
    """What goes wrong inside as a SettingsError with the reward function's name and file, and the question."""
    try:
        yield
    except Exception as error:
        plain = function.args[0] if isinstance(function, partial) and function.args else function
        place = getattr(getattr(plain, "__code__", None), "co_filename", None)
        name = f"{getattr(plain, '__name__', plain)}{f' of {place}' if place else ''}"
        raise SettingsError(
            f"the reward function {name} fails on a response to {question[:60]!r} ({_why(error)}): let it return a "
            "number, or a dict with `score`, for every response"
        ) from error


def doubt(scores_N: np.ndarray) -> str | None:
    """What is odd about the scores of a run's first batch; None if nothing is."""
    if len(scores_N) > 1 and np.ptp(scores_N) == 0:
        return f"every score of the first batch is {scores_N[0]:g}: while no score differs, nothing is learnt"
    if not (scores_N == 1.0).any():
        return (
            "no score of the first batch is 1, which is what counts as correct: if none ever is, return `acc` next to "
            "`score`, or accuracies, best checkpoints and peaks are of nothing"
        )
    return None


def _why(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
