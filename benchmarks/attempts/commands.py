"""Command lines, and the files, good and bad, that they name."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from benchmarks.attempts.attempt import Attempt
from benchmarks.attempts.child import apart, module
from benchmarks.attempts.commands_listed import LINES, TOLD

SAMPLERS = {
    "syntax": b"def mine(rollouts, progress, rng)\n    return rollouts\n",
    "raises": b"raise RuntimeError('at import')\n",
    "nothing": b"x = 3\n",
    "two": b"def a(r, p, g):\n    return r\ndef b(r, p, g):\n    return r\n",
    "import": b"import no_such_module\ndef mine(r, p, g):\n    return r\n",
    "grpo": b"def grpo(rollouts, progress, rng):\n    return rollouts\n",
    "exits": b"import sys\nsys.exit(0)\n",
    "binary": bytes(range(256)),
}


def files() -> None:
    """What the command lines name, good and bad, in the working directory."""
    from repro.policy.model import SHIPPED

    lines = "".join(json.dumps({"prompt": f"{n} + 1?", "answer": n + 1}) + "\n" for n in range(200))
    prompt, extra = [{"role": "user", "content": "1?"}], {"id": "a", "question": "1?"}
    row = {"data_source": "s", "prompt": prompt, "reward_model": {"ground_truth": "1"}, "extra_info": extra}
    Path("again").mkdir()
    for name, content in {
        "good.jsonl": lines,
        "again/good.jsonl": lines,
        "broken.jsonl": '{"prompt": "1?", "answer": 1}\n{"prompt": "1?"',
        "empty.jsonl": "\n",
        "cut.json": '{"seeds": [0',
    }.items():
        Path(name).write_text(content)
    Path("latin.jsonl").write_bytes('{"prompt": "é?", "answer": 1}'.encode("latin-1"))
    pd.DataFrame([row]).to_parquet("good.parquet")
    pd.DataFrame({"other": [1]}).to_parquet("other.parquet")
    Path("cut.parquet").write_bytes(Path("good.parquet").read_bytes()[:200])
    for name, content in SAMPLERS.items():
        Path(f"sampler_{name}.py").write_bytes(content)
    Path("model").symlink_to(SHIPPED)
    models(SHIPPED)
    for run, config in {
        "a run": "data: {val_files: [held.parquet]}\n",
        "a cut run": "data: {val",
        "an empty run": "",
    }.items():
        Path(run).mkdir()
        Path(run, "verl.yaml").write_text(config)


def models(good: Path) -> None:
    """Folders of models that are cut, a pickle, or bring code of their own."""
    for name in ("broken model", "a pickle", "model with code"):
        Path(name).mkdir()
        for file in good.iterdir():
            if file.suffix in (".json", ".jinja"):
                Path(name, file.name).write_bytes(file.read_bytes())
    weights = (good / "model.safetensors").read_bytes()
    Path("broken model/model.safetensors").write_bytes(weights[: len(weights) // 2])
    Path("a pickle/pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch executed'\ntR.")
    Path("model with code/model.safetensors").write_bytes(weights)
    Path("model with code/mine.py").write_text("open('executed', 'w')\nclass Mine: ...\n")
    config = json.loads((good / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {key: "mine.Mine" for key in ("AutoConfig", "AutoModelForCausalLM")}}
    Path("model with code/config.json").write_text(json.dumps(config))


def warm() -> None:
    """Imports what most of the command lines do, once; verl too, where it is installed."""
    import repro.atlas.run
    import repro.evaluation.run
    import repro.paper_scale.run
    import repro.training  # noqa: F401
    from repro.verl.version import UnsupportedVerl, require_verl

    try:
        require_verl()
    except UnsupportedVerl:
        return
    from repro.verl.compose import check, compose

    check(compose([]))


def attempts() -> Iterator[Attempt]:
    files()
    warm()
    for name, lines in LINES.items():
        for line in lines:
            act = functools.partial(apart, module(name, *line))
            yield Attempt("commands", name, repr(" ".join(line))[:160], act)
    for name, line, right in TOLD:
        yield Attempt("commands", name, " ".join(line), functools.partial(apart, module(name, *line)), right)
