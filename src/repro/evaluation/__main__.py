"""`python -m repro.evaluation MODEL DATA.parquet… --out FOLDER`: avg@n, pass@k, truncation, and every response."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from repro.data.sandbox import SandboxFailed
from repro.data.verify import Verifier
from repro.engine.backends import NAMES, Backend, BackendError, open_backend, open_best
from repro.evaluation.questions import Question, QuestionsMissing, load_questions
from repro.evaluation.run import Evaluation, Sampling, evaluate
from repro.files import write_json
from repro.language_model.load import ModelMissing, fetch


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0, or 1 after one sentence on stderr."""
    chosen = parse(arguments)
    try:
        data = {path.stem: load_questions(path) for path in chosen.data}
        if len(data) != len(chosen.data):
            raise QuestionsMissing("two files of one name: their results would stand in one folder")
        folder = fetch(chosen.model, chosen.dtype)
        run(chosen, folder, data)
    except (BackendError, ModelMissing, QuestionsMissing, SandboxFailed) as error:
        # `fetch` names the setting of another caller.
        print(f"repro: {str(error).removeprefix('language_model.source: ')}", file=sys.stderr)
        return 1
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m repro.evaluation", description=__doc__)
    parser.add_argument("model", metavar="MODEL", help="a folder of save_pretrained, or a hub id")
    parser.add_argument("data", nargs="+", type=Path, metavar="DATA.parquet", help="written by `repro.data prepare`")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--engine", choices=("auto", *NAMES), default="auto", help="auto: vllm where it runs")
    parser.add_argument("--dtype", default="bfloat16", help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=1, help="of the engine, on a CPU")
    parser.add_argument("--samples", type=int, default=32, help="responses per question; default: %(default)s")
    parser.add_argument("--max-new-tokens", type=int, default=4096, help="default: %(default)s")
    parser.add_argument("--temperature", type=float, default=1.0, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--k", type=int, nargs="+", help="of pass@k; default: powers of two up to --samples")
    parser.add_argument("--template", type=json.loads, default={}, metavar="JSON", help="options of the chat template")
    parser.add_argument("--verifiers", type=int, default=1, help="child processes that verify")
    chosen = parser.parse_args(arguments)
    if min(chosen.samples, chosen.max_new_tokens, chosen.verifiers) < 1 or chosen.temperature <= 0:
        parser.error("--samples, --max-new-tokens and --verifiers are at least 1, --temperature is above 0")
    if any(not 1 <= k <= chosen.samples for k in chosen.k or []):
        parser.error(f"--k: from 1 to --samples, which is {chosen.samples}")
    return chosen


def run(chosen: argparse.Namespace, folder: Path, data: dict[str, list[Question]]) -> None:
    """Evaluate every data set with one engine, write OUT/NAME/ and OUT/evaluation.json, and print a line for each."""
    sampling = Sampling(chosen.samples, chosen.max_new_tokens, chosen.temperature, chosen.seed)
    backend, why = _open(chosen, folder)
    if why:
        print(f"repro: sampling with transformers: {why}", file=sys.stderr)
    with backend, Verifier(chosen.verifiers) as verifier:
        facts = {"model": chosen.model, "engine": backend.name, "dtype": chosen.dtype, "template": chosen.template}
        for name, questions in data.items():
            found = evaluate(
                backend,
                questions,
                verifier,
                sampling,
                template=chosen.template,
                longest=longest_of(backend, folder),
                ks=chosen.k,
            )
            found.save(chosen.out / name, chosen.out / "timings" / name)
            print(sentence(name, found))
    write_json({**facts, **asdict(sampling), "data": list(data)}, chosen.out / "evaluation.json")


def _open(chosen: argparse.Namespace, folder: Path) -> tuple[Backend, str | None]:
    options: dict[str, Any] = {"dtype": chosen.dtype, "threads": chosen.threads}
    if chosen.engine == "auto":
        return open_best(folder, **options)
    return open_backend(chosen.engine, folder, **options), None


def longest_of(backend: Backend, folder: Path) -> int | None:
    """Tokens of prompt and response that the engine takes with this model; None where the model sets no bound."""
    from transformers import AutoConfig

    model = getattr(AutoConfig.from_pretrained(folder), "max_position_embeddings", None)
    if backend.name != "vllm":
        return model
    from repro.engine.backends.vllm import MAX_LENGTH

    return min(MAX_LENGTH, model or MAX_LENGTH)


def sentence(name: str, found: Evaluation) -> str:
    """One data set's figures, for the terminal."""
    figures, shares = found.summary, found.summary["pass"]
    error = figures["standard_error"]
    spread = "" if error is None else f" ± {error:.3f}"
    passes = ", ".join(f"pass@{k} {share:.3f}" for k, share in shares.items())
    return (
        f"{name}: avg@{figures['samples']} {figures['accuracy']:.3f}{spread} over {figures['questions']} questions; "
        f"{passes}; truncated {figures['truncated']:.1%}; {figures['response_tokens']:.0f} tokens"
    )


if __name__ == "__main__":
    sys.exit(main())
