"""What every backend is and returns: many samples of any language model, tokens with their log-probabilities."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from repro.errors import Refused

NAMES = ("vllm", "transformers")
MAX_LENGTH = 2048  # vLLM's default limit on prompt + response; tokens


class BackendError(Refused, RuntimeError):
    """One sentence: which engine, what it could not do, and the remedy."""


@dataclass(frozen=True, eq=False)
class Samples:
    """N responses, prompt by prompt; N = prompts · samples.

    ids_N        list of int arrays    response tokens, including the stop token if one was drawn
    logprob_N    list of float arrays  log-probability of each, nats
    finished_N   bool                  whether a stop token was drawn, so not truncated
    texts_N      list of str           without the stop token; special tokens are shown
    seconds      float                 wall time of sampling only
    """

    ids_N: list[np.ndarray]
    logprob_N: list[np.ndarray]
    finished_N: np.ndarray
    texts_N: list[str]
    seconds: float

    def __len__(self) -> int:
        return len(self.ids_N)

    @property
    def tokens_N(self) -> np.ndarray:
        """Response lengths; tokens."""
        return np.array([len(ids) for ids in self.ids_N])

    @classmethod
    def of(cls, tokenizer: Any, rows: Sequence[tuple], stops: Sequence[int], seconds: float) -> "Samples":
        """From rows of (ids, log-probabilities); each row is cut after its first stop token."""
        ends_N = [_end(ids, stops) for ids, _ in rows]
        rows = [(ids[:end], logprob[:end]) for (ids, logprob), end in zip(rows, ends_N, strict=True)]
        ids_N = [np.asarray(ids, np.int64) for ids, _ in rows]
        finished_N = np.array([len(ids) > 0 and int(ids[-1]) in stops for ids in ids_N])
        bare = [ids[:-1] if done else ids for ids, done in zip(ids_N, finished_N, strict=True)]
        texts = tokenizer.batch_decode([ids.tolist() for ids in bare], clean_up_tokenization_spaces=False)
        return cls(ids_N, [np.asarray(logprob) for _, logprob in rows], finished_N, texts, seconds)


def _end(ids: Sequence[int], stops: Sequence[int]) -> int:
    """The number of tokens up to and including the first stop token."""
    places = np.flatnonzero(np.isin(np.asarray(ids, np.int64), stops))
    return int(places[0]) + 1 if len(places) else len(ids)


def stop_tokens(stop: int | Sequence[int]) -> list[int]:
    """One token or several, as a list."""
    return [stop] if isinstance(stop, int) else [int(each) for each in stop]


class Backend(ABC):
    """The interface of both engines; a context manager that frees its memory and processes."""

    name: str
    tokenizer: Any

    def sample(
        self,
        prompts_Q: Sequence[Sequence[int]],
        samples: int,
        *,
        max_new_tokens: int,
        temperature: float,
        stop: int | Sequence[int],
        seed: int,
        top_p: float = 1.0,
    ) -> Samples:
        """`samples` responses to each prompt (token ids); deterministic on a given machine.

        `stop`: one token or several, any of which ends a response. `top_p`: sample from the nucleus, the smallest set
        of tokens with this much probability mass in the tempered distribution (Holtzman et al., 2020), renormalised.
        """
        stops, how = stop_tokens(stop), {"max_new_tokens": max_new_tokens, "temperature": temperature, "top_p": top_p}
        rows, seconds = self._draw([list(prompt) for prompt in prompts_Q], samples, stops, seed, **how)
        return Samples.of(self.tokenizer, rows, stops, seconds)

    @abstractmethod
    def _draw(
        self, prompts_Q: list[list[int]], samples: int, stops: list[int], seed: int, **how: Any
    ) -> tuple[list[tuple], float]:
        """Rows of (ids, log-probabilities), at least up to the first stop token, and the seconds. `how`: `sample`'s
        max_new_tokens, temperature and top_p."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
