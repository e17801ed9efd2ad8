"""`python -m repro.replay DUMP`: rollouts that a trainer wrote, put through the arms; the answer, and a page.

DUMP is a file or a folder: verl's rollout_data_dir, TRL's completions, slime's debug rollouts, prime-rl's traces,
open-instruct's rollouts, or a table (csv, jsonl, parquet) with the columns step, group, reward, prompt_tokens and
response_tokens. The page is the notebook your_rollouts, executed on DUMP, which is left next to it.
"""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from repro import paths
from repro.errors import command, number
from repro.evaluation.model import model_folder
from repro.replay.over_steps import replay
from repro.replay.reading import files_of

NOTEBOOK = Path("tutorials", "your_rollouts.ipynb")


@command
def main(arguments: list[str] | None = None) -> int:
    """Exit status 0, or 1 with one sentence."""
    parser = argparse.ArgumentParser(prog="python -m repro.replay", description=__doc__)
    add, pairs = parser.add_argument, {"nargs": "+", "type": _pair, "default": [], "metavar": "NAME=VALUE"}
    add("dump", metavar="DUMP")
    add("--tokenizer", help="for files without lengths: a hub id or a folder")
    add("--rewards", help="which of them count: score=1, or correct=1 format=0.2", **pairs)
    add("--columns", help="of a table of your own: group=problem reward=correct", **pairs)
    add("--parameters", help="of the model, or its config.json; default that of --model, or 1.5e9")
    add("--generation-share", type=number(float, 0.001, 0.999), help="of today's bill; default: of its FLOPs")
    add("--model", help="that wrote them, for gradients and entropies of some of them: a folder or a hub id")
    add("--sample", type=number(int, 1, 10**6), default=64, help="rollouts on the model; default 64")
    add("--at", type=int, metavar="STEP", help="their step; default the first")
    add("--out", type=Path, default=Path("replay.html"), help="the page; default replay.html")
    options = vars(parser.parse_args(arguments))
    out, options["columns"] = options.pop("out"), dict(options["columns"])
    options["rewards"] = {name: float(weight) for name, weight in options["rewards"]}
    files_of(Path(options["dump"]))  # refuses in a sentence, and before a kernel starts
    if model := options["model"]:
        model_folder(model, "float32")
    options["parameters"] = options["parameters"] or (model if model and Path(model).is_dir() else "1.5e9")
    if find_spec("papermill"):
        print(page(options, out), out.resolve(), sep="\n\n", flush=True)
    elif model:
        parser.error("--model has a page for its result, which needs the extra `study`")
    else:
        options = {name: value for name, value in options.items() if name not in ("model", "sample", "at")}
        print(replay(options.pop("dump"), **options).answer)
    return 0


def page(options: dict[str, Any], out: Path) -> str:
    """Write the page to `out`; the answer."""
    import nbformat

    from repro.pipeline.run import execute
    from repro.report.html import render
    from repro.report.provenance import collect

    folder = paths.NOTEBOOKS if (paths.NOTEBOOKS / NOTEBOOK).exists() else paths.SHIPPED
    given = {name: str(Path(text).resolve()) if Path(str(text)).exists() else text for name, text in options.items()}
    executed = out.with_suffix(".ipynb")
    execute("replay", folder / NOTEBOOK, executed, given)
    render(executed, out, "Which arm for these rollouts?", collect(settings=given, command="python -m repro.replay"))
    answer = next(cell for cell in nbformat.read(executed, 4).cells if "answer" in cell.metadata.get("tags", []))
    return answer.outputs[-1]["data"]["text/markdown"]


def _pair(text: str) -> tuple[str, str]:
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not NAME=VALUE")
    return text.rpartition("=")[::2]


if __name__ == "__main__":
    sys.exit(main())
