"""Sampling with transformers in this process: any causal language model, through the embedded engine's `generate`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from repro.engine.backends.base import Backend

BATCH_ROLLOUTS = 64  # sampled at a time, without splitting a query; a 135 M model is not faster with more


class Transformers(Backend):
    """See `Backend`. `model` and `tokenizer` may be given instead of `folder`."""

    name = "transformers"

    def __init__(
        self,
        folder: Path | None = None,
        *,
        dtype: str = "float32",
        threads: int = 1,
        model: Any = None,
        tokenizer: Any = None,
    ):
        if model is None:
            from repro.policy.model import load_policy

            model, tokenizer = load_policy(folder, dtype=dtype)
        self.model, self.tokenizer, self.threads = model, tokenizer, threads

    def _draw(
        self, prompts_Q: list[list[int]], samples: int, stops: list[int], seed: int, top_p: float = 1.0, **how: Any
    ) -> tuple[list[tuple], float]:
        import torch

        from repro.engine.generate import generate

        model = self.model if top_p == 1.0 else Nucleus(self.model, top_p, how["temperature"])
        generator = torch.Generator(device=self.model.device).manual_seed(seed)
        chunk = max(1, BATCH_ROLLOUTS // samples)
        started, rows = time.monotonic(), []
        with self._threads():
            for start in range(0, len(prompts_Q), chunk):
                part = prompts_Q[start : start + chunk]
                responses = generate(
                    model,
                    part,
                    [samples] * len(part),
                    eos=stops[0],  # responses are cut later at any other
                    pad=stops[0],
                    generator=generator,
                    **how,
                )
                arrays = (responses.ids_N_T, responses.logprob_N_T, responses.mask_N_T)
                for ids, logprob, mask in zip(*(array.cpu().numpy() for array in arrays), strict=True):
                    rows.append((ids[mask], logprob[mask]))
        return rows, time.monotonic() - started

    def close(self) -> None:
        self.model = None

    @contextmanager
    def _threads(self) -> Iterator[None]:
        """Use `threads` torch threads, then restore the previous number."""
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


class Nucleus:
    """A model whose next token comes from the nucleus: tokens outside it get the logit -inf.

    The nucleus is that of transformers' own processor on the tempered distribution, as in vLLM.
    """

    def __init__(self, model: Any, top_p: float, temperature: float):
        from transformers import TopPLogitsWarper

        self.model, self.device, self.config = model, model.device, model.config
        self.temperature, self.process = temperature, TopPLogitsWarper(top_p)

    def __call__(self, **inputs: Any) -> Any:
        out = self.model(**inputs)
        logits_B_V = out.logits[:, -1].float() / self.temperature
        out.logits = (self.process(None, logits_B_V) * self.temperature)[:, None]
        return out
