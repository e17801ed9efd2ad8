"""Verdicts on samples of a profile by what judges in training: math-verify, or a reward function of one's own."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from repro.data.verify import Verifier
from repro.settings import SettingsError

VERIFIERS = 4  # child processes beside each engine
OURS = "pkg://repro.data.verify"  # configs/verl/repro_trainer.yaml names it

Verdicts = Callable[[Sequence[str], Sequence[Mapping[str, Any]]], list[bool]]


@contextmanager
def judge(reward: Mapping[str, Any] | None) -> Iterator[Verdicts]:
    """correct_N of responses to rows in verl's format. `reward`: verl's `reward.custom_reward_function`, None for
    math-verify. As in repro.verl.reward, a response is correct if its score is 1."""
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
        return [self._score(text, row) == 1.0 for text, row in zip(texts_N, rows_N, strict=True)]

    def _score(self, text: str, row: Mapping[str, Any]) -> float:
        given = {"data_source": row["data_source"], "solution_str": text, "extra_info": row["extra_info"]}
        try:
            score = self.function(**given, ground_truth=row["reward_model"]["ground_truth"])
            score = asyncio.run(score) if inspect.iscoroutine(score) else score
            return float(score["score"] if isinstance(score, dict) else score)
        except Exception as error:
            raise SettingsError(
                f"{self.name} fails on a response to {row['prompt'][-1]['content'][:60]!r} ({_why(error)}): mend it"
            ) from error


def _why(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
