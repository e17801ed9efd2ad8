"""`python -m repro.evaluation MODEL DATA.parquet… --out FOLDER`: avg@n, pass@k, truncation, and every response.

Running the same command again resumes an interrupted evaluation and reads a complete one.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repro.data.verify import Verifier
from repro.engine.backends import NAMES, BackendError, open_backend, why_not_vllm
from repro.errors import COUNT, SEED, command, number
from repro.evaluation.model import fingerprint, longest_of, model_folder, stops_of, tokenizer_of
from repro.evaluation.questions import Question, QuestionsMissing, load_questions, prompt_ids
from repro.evaluation.run import Evaluation, Judge, Sampling, by_answer, evaluate
from repro.evaluation.store import Store
from repro.settings.fields import COLDEST


@dataclass(frozen=True)
class Prompted:
    """A data set's questions and their prompts (token ids)."""

    questions: list[Question]
    prompts_Q: list[list[int]]

    @property
    def checksum(self) -> str:
        """Hash of ids, answers and prompts."""
        content = [[question.id, question.answer] for question in self.questions], self.prompts_Q
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


@command(interrupted="interrupted; the same command resumes after the last chunk")
def main(arguments: list[str] | None = None) -> int:
    """Exit status 0, or 1 with an error message on stderr."""
    chosen = parse(arguments)
    data = {path.stem: load_questions(path) for path in chosen.data}
    if len(data) != len(chosen.data):
        raise QuestionsMissing("two files have the same name, so their results would share a folder")
    folder = model_folder(chosen.model, chosen.dtype)
    tokenizer = tokenizer_of(folder)
    sets = {name: Prompted(each, prompt_ids(tokenizer, each, chosen.template)) for name, each in data.items()}
    with Verifier(chosen.verifiers) as verifier:
        run(chosen, folder, tokenizer, sets, by_answer(verifier))
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m repro.evaluation", description=__doc__)
    parser.add_argument("model", metavar="MODEL", help="a folder of save_pretrained, or a hub id")
    parser.add_argument("data", nargs="+", type=Path, metavar="DATA.parquet", help="written by `repro.data prepare`")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--engine", choices=("auto", *NAMES), default="auto", help="auto: vllm if installed")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), default="bfloat16", help="default: %(default)s"
    )
    parser.add_argument("--threads", type=number(int, 1, 256), default=1, help="threads of the engine on a CPU")
    parser.add_argument("--samples", type=COUNT, default=32, help="responses per question; default: %(default)s")
    parser.add_argument("--max-new-tokens", type=COUNT, default=4096, help="default: %(default)s")
    parser.add_argument("--temperature", type=number(float, COLDEST, 100), default=1.0, help="default: %(default)s")
    parser.add_argument("--top-p", type=number(float, 1e-6, 1), default=1.0, help="nucleus sampling; default: off")
    parser.add_argument("--seed", type=SEED, default=0)
    parser.add_argument("--k", type=COUNT, nargs="+", help="k of pass@k; default: powers of two up to --samples")
    parser.add_argument("--template", type=_options, default={}, metavar="JSON", help="options of the chat template")
    parser.add_argument("--verifiers", type=number(int, 1, 256), default=1, help="child processes that verify")
    parser.add_argument("--chunk", type=COUNT, default=2048, help="responses sampled at a time; default: %(default)s")
    chosen = parser.parse_args(arguments)
    if any(not 1 <= k <= chosen.samples for k in chosen.k or []):
        parser.error(f"--k must lie between 1 and --samples, which is {chosen.samples}")
    return chosen


def _options(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)  # as the results will hold it
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no JSON object, such as '{{\"enable_thinking\": false}}'")
    return value


def run(chosen: argparse.Namespace, folder: Path, tokenizer: Any, sets: dict[str, Prompted], judge: Judge) -> None:
    """Evaluate every data set with one engine, write OUT/NAME/, and print one line each."""
    length = fitting(sets, chosen.max_new_tokens, longest_of(folder))
    stops = stops_of(folder, tokenizer)
    sampling = Sampling(
        chosen.samples, chosen.max_new_tokens, chosen.temperature, chosen.seed, chosen.top_p, chosen.chunk
    )
    facts = {"model": chosen.model, "weights": fingerprint(folder), "dtype": chosen.dtype, "threads": chosen.threads}
    facts |= {"template": chosen.template, "stops": stops, "engine": engine_of(chosen.engine)}
    facts |= asdict(sampling)
    stores = {name: Store(chosen.out / name, facts | {"prompts": each.checksum}) for name, each in sets.items()}
    opening = {"dtype": chosen.dtype, "threads": chosen.threads, "max_length": length}
    complete = all(store.complete for store in stores.values())
    engine = nullcontext() if complete else open_backend(facts["engine"], folder, **opening)
    with engine as backend:
        for name, each in sets.items():
            options: dict[str, Any] = {"stops": stops, "ks": chosen.k, "store": stores[name]}
            report = progress(name, len(each.questions))
            outcome = evaluate(backend, each.questions, each.prompts_Q, judge, sampling, report=report, **options)
            outcome.save(chosen.out / name, chosen.out / "timings" / name)
            print(sentence(name, outcome), flush=True)


def progress(name: str, questions: int) -> Callable[[int], None]:
    """Prints a line on stderr after each chunk, since an evaluation may take hours."""
    return lambda done: print(f"{name}: {done} of {questions} questions", file=sys.stderr, flush=True)


def engine_of(choice: str) -> str:
    """The engine's name. If vLLM is installed but fails to start, that is an error: transformers is far slower."""
    if choice != "auto":
        return choice
    if why := why_not_vllm():
        print(f"repro: sampling with transformers: {why}", file=sys.stderr)
    return "transformers" if why else "vllm"


def fitting(sets: dict[str, Prompted], max_new_tokens: int, longest: int | None) -> int:
    """Tokens of the longest prompt and its response; BackendError if the model's limit is lower."""
    tokens, worst = max(
        (len(prompt), question.id)
        for each in sets.values()
        for prompt, question in zip(each.prompts_Q, each.questions, strict=True)
    )
    if longest is not None and tokens + max_new_tokens > longest:
        raise BackendError(
            f"{worst}: a prompt of {tokens} tokens and a response of up to {max_new_tokens} exceed the model's limit "
            f"of {longest}: lower --max-new-tokens to {longest - tokens} or less"
        )
    return tokens + max_new_tokens


def sentence(name: str, outcome: Evaluation) -> str:
    """One data set's figures, for the terminal."""
    figures, shares = outcome.summary, outcome.summary["pass"]
    error = figures["standard_error"]
    spread = "" if error is None else f" ± {error:.3f}"
    passes = ", ".join(f"pass@{k} {share:.3f}" for k, share in shares.items())
    return (
        f"{name}: avg@{figures['samples']} {figures['accuracy']:.3f}{spread} over {figures['questions']} questions; "
        f"{passes}; truncated {figures['truncated']:.1%}; {figures['response_tokens']:.0f} tokens"
    )


if __name__ == "__main__":
    sys.exit(main())
