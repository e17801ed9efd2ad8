"""What a replay's page prints to switch its arm on does so: verl composes it, TRL's trainer is built with it."""

import contextlib
import importlib.util
import io
import json
import shlex
from types import SimpleNamespace

import pytest

from repro import arms
from repro.methods.guard import name_of
from repro.paths import NOTEBOOKS
from repro.settings import load

ARMS = ("cost-aware", "zvf")  # a sampler, and a filter


def printed(arm):
    """The lines for verl, and for TRL, of a page that recommends `arm`."""
    cells = json.loads((NOTEBOOKS / "tutorials" / "your_rollouts.ipynb").read_text())["cells"]
    [source] = [text for cell in cells if (text := "".join(cell["source"])).startswith('print(f"python -m repro.verl')]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(source, {"found": SimpleNamespace(best=arm)})
    verl, *trl = said.getvalue().splitlines()
    return verl, "\n".join(trl)


@pytest.mark.verl
@pytest.mark.parametrize("arm", ARMS)
def test_verl_composes_the_arm(arm, tmp_path, monkeypatch):
    from repro.verl import __main__ as command
    from repro.verl import prepare, ready

    monkeypatch.setattr(ready, "gpus_here", lambda: 0)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    data, found = tmp_path / "mine.jsonl", []
    data.write_text("".join(json.dumps({"prompt": f"{n} + 1?", "answer": n + 1}) + "\n" for n in range(900)))
    monkeypatch.setattr(prepare, "described", lambda run: found.append(run) or "")
    python, module, name, *words = shlex.split(
        printed(arm)[0].replace("MODEL", "my/model").replace("mine.jsonl", str(data))
    )
    assert (python, module, name) == ("python", "-m", "repro.verl")
    command.main([*words, "--check", "--output", str(tmp_path / "runs")])
    assert parts(found[0].method) == parts(arms.build(arm, load().arm(arm)))


@pytest.mark.trl
@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is missing: `make extra-trl` installs it")
@pytest.mark.parametrize("arm", ARMS)
def test_trl_builds_its_trainer_with_the_arm(arm, tmp_path):
    from test_trl import trainer_on_trl

    imported, call = printed(arm)[1].splitlines()
    given = {}
    trainer = lambda **keywords: given.update(keywords) or SimpleNamespace(train=lambda: None)  # noqa: E731
    exec(call.replace("=…", "=None").replace("(…)", "()"), {"GRPOConfig": dict, "ArmTrainer": trainer})
    assert imported == "from repro.trl import ArmTrainer"
    assert set(given) == {"model", "reward_funcs", "train_dataset", "args", "arm"}
    built = trainer_on_trl(tmp_path, given["arm"])
    assert parts(built.method) == parts(arms.build(arm, load().arm(arm)))


def parts(method):
    """What chooses, and its parameters."""
    return [(name_of(part), getattr(part, "keywords", {})) for part in (method.filter, *method.samplers) if part]
