"""Sampling with vLLM's offline engine in a child process: `python -m repro.engine.backends.vllm FD ENGINE`.

It needs a separate process because vLLM sets the number of threads, seeds torch and takes over logging, and because the
number of threads is read only once, at start-up. Both ends exchange pickled tuples through one pipe; when the caller
exits, the pipe is closed and the engine exits.
"""

import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from repro.engine.backends.base import MAX_LENGTH, Backend, BackendError

MEMORY = "REPRO_VLLM_MEMORY"  # the share of a GPU's memory that vLLM may take; else vLLM's own default
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; its default is half the memory
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # run the engine in the child itself
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "OMP_WAIT_POLICY": "passive",  # spinning threads are 40 times slower on a busy machine
    "TOKENIZERS_PARALLELISM": "false",
}


class Vllm(Backend):
    """See `Backend`. Starting takes about 15 seconds, most of it vLLM's import."""

    name = "vllm"

    def __init__(self, folder: Path, *, dtype: str = "float32", threads: int = 1, max_length: int = MAX_LENGTH):
        from transformers import AutoTokenizer

        self.tokenizer, self.dtype = AutoTokenizer.from_pretrained(folder), dtype
        self._pipe, theirs = Pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        module = [sys.executable, "-m", "repro.engine.backends.vllm"]
        self._process = subprocess.Popen(
            [*module, str(theirs.fileno()), str(folder), dtype, str(max_length)],
            pass_fds=[theirs.fileno()],
            env={**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        theirs.close()
        try:
            self._answer()
        except BackendError as error:
            self.close()
            reason = textwrap.shorten(str(error), 400, placeholder=" …")
            raise BackendError(
                f"vLLM did not start with {folder} in {dtype}: check whether another program uses the memory "
                f"({MEMORY}=0.5 then gives vLLM half of a GPU's), and whether this vLLM supports the model's "
                f"architecture ({reason})"
            ) from error

    def _draw(
        self, prompts_Q: list[list[int]], samples: int, stops: list[int], seed: int, max_new_tokens: int, **how: Any
    ) -> tuple[list[tuple], float]:
        # One request per sample: with n > 1 in one request, seeds have crashed vLLM 0.31.
        prompts_N = [prompt for prompt in prompts_Q for _ in range(samples)]
        return self._ask("sample", prompts_N, {"max_tokens": max_new_tokens, "stop_token_ids": stops, **how}, seed)

    def close(self) -> None:
        self._pipe.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _ask(self, what: str, *arguments: Any) -> Any:
        try:
            self._pipe.send((what, arguments))
        except (BrokenPipeError, OSError) as error:
            raise BackendError(f"vLLM's process has ended ({self._last_words()}); open a new engine") from error
        return self._answer()

    def _answer(self) -> Any:
        try:
            failed, content = self._pipe.recv()
        except (EOFError, OSError) as error:
            self._process.wait()
            raise BackendError(f"vLLM's process ended unexpectedly ({self._last_words()})") from error
        if failed:
            raise BackendError(f"vLLM: {content}")
        return content

    def _last_words(self) -> str:
        """The last error that the process wrote, or its last line."""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        lines = [line for line in lines if "Error" in line] or lines
        return lines[-1] if lines else f"exit status {self._process.poll()}"


class Engine:
    """vLLM itself, in the child process."""

    def __init__(self, folder: str, dtype: str, max_length: str):
        from vllm import LLM
        from vllm.platforms import current_platform

        self.llm = LLM(
            folder,
            dtype=dtype,
            enforce_eager=current_platform.is_cpu(),  # on a CPU, compiling takes longer than a whole profile
            max_model_len=min(int(max_length), _longest(folder, int(max_length))),
            logprobs_mode="processed_logprobs",  # of the tempered distribution that is sampled from
            block_size=32,  # tokens; samples of one query share whole blocks of their prompt
            generation_config="vllm",  # the model's sampling defaults (e.g. top-p) would change the distribution
            seed=0,
            **({"gpu_memory_utilization": float(os.environ[MEMORY])} if os.environ.get(MEMORY) else {}),
        )
        # The first request compiles kernels, up to ten seconds: count it as start-up.
        self.sample([[0]], {"max_tokens": 1, "temperature": 1.0, "top_p": 1.0, "stop_token_ids": []}, 0)

    def sample(self, prompts_N: list[list[int]], options: dict[str, Any], seed: int) -> tuple[list[tuple], float]:
        """(ids, log-probabilities) per prompt, and the seconds."""
        import torch
        from vllm import SamplingParams

        # Requests without a seed draw from torch's generator. With a seed they would crash when a prompt is prefilled
        # in parts: CPU generators have no offset.
        torch.manual_seed(seed)
        parameters = SamplingParams(**options, logprobs=0, ignore_eos=True, detokenize=False)
        started = time.monotonic()
        done = self.llm.generate([{"prompt_token_ids": ids} for ids in prompts_N], parameters, use_tqdm=False)
        seconds = time.monotonic() - started
        rows = []
        for request in done:
            ids = list(request.outputs[0].token_ids)
            logprobs = [step[token].logprob for step, token in zip(request.outputs[0].logprobs, ids, strict=True)]
            rows.append((ids, logprobs))
        return rows, seconds


def _longest(folder: str, otherwise: int) -> int:
    from transformers import AutoConfig

    return getattr(AutoConfig.from_pretrained(folder), "max_position_embeddings", otherwise)


def serve(pipe: Connection, folder: str, dtype: str, max_length: str) -> None:
    """Answer requests (method of Engine, arguments) with (failed, result or message) until the pipe is closed."""

    _stop_with_parent()

    def attempt(call: Any, *arguments: Any) -> Any:
        try:
            result = call(*arguments)
            pipe.send((False, None if isinstance(result, Engine) else result))
            return result
        except Exception as error:
            pipe.send((True, f"{type(error).__name__}: {error}"))
            return None

    engine = attempt(Engine, folder, dtype, max_length)
    while engine is not None:
        try:
            what, arguments = pipe.recv()
        except EOFError:
            return
        attempt(getattr(engine, what), *arguments)


def _stop_with_parent() -> None:
    """Exit when the caller is gone, even in the middle of a batch: a killed stage must leave nothing running."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), *sys.argv[2:])
