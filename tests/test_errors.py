"""Failures that are expected end in one sentence on stderr; others keep their traceback and say whose they are."""

import errno
import os
import shutil
import subprocess
import sys

import pytest

from repro import errors
from repro.errors import Refused, command, number, sentence
from repro.paths import ROOT
from repro.settings import SettingsError


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SettingsError("params.yaml: a\n  b"), "params.yaml: a b"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a/b"), "a/b: no such file or directory"),
        (OSError(errno.ENOSPC, "No space left on device", "x"), "no space left on the disk of x: free some"),
        (MemoryError("Unable to allocate 74 GiB"), "out of memory (Unable to allocate 74 GiB)"),
        (OSError("a/b holds no model"), "a/b holds no model"),
        (KeyError("a"), None),
    ],
)
def test_words_for_what_is_expected(error, said):
    found = sentence(error)
    assert found == said if said is None else found.startswith(said) and "\n" not in found


def test_a_command_tells_an_expected_failure_and_owns_up_to_another(capsys):
    def fails(error):
        raise error

    assert command(fails, name="x", status=2)(Refused("no such arm")) == 2
    assert capsys.readouterr().err == "x: no such arm\n"
    assert command(fails)(ZeroDivisionError("by 0")) == 1
    told = capsys.readouterr().err
    assert "Traceback" in told and "ZeroDivisionError: by 0" in told and "an error of repro itself" in told
    assert command(fails, interrupted="stopped")(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "repro: stopped\n"
    assert command(lambda: None)() == 0 and command(lambda: 3)() == 3


def test_what_another_process_of_ray_raised_is_told_too():
    class TaskError(Exception):
        cause = SettingsError("arms.x: no")

    assert sentence(TaskError("forty lines")) == "arms.x: no"


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "4294967296"])
def test_a_number_on_a_command_line_is_one(text):
    with pytest.raises(Exception, match="is no whole number from 0 to 4294967295"):
        number(int, 0, 2**32 - 1)(text)
    assert number(float, 0.01, 100)("0.5") == 0.5
    for wrong in ("nan", "inf", "0", "-1"):
        with pytest.raises(Exception, match="is no number from"):
            number(float, 0.01, 100)(wrong)


def test_a_script_and_a_notebook_show_the_sentence_alone(tmp_path):
    script = "from repro import settings; settings.load(scale='smok')"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("repro: params.yaml: scale: there is no scale 'smok'; did")
    assert done.stderr.count("\n") == 1
    assert SettingsError("a b")._render_traceback_() == ["SettingsError: a b"]


def test_outside_a_project_the_root_is_the_checkout_that_is_installed(tmp_path):
    def asked(**more):
        script = [sys.executable, "-c", "from repro import paths; print(paths.ROOT)"]
        return subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, **more})

    assert asked().stdout.strip() == str(ROOT)
    copied = tmp_path / "site/repro"
    shutil.copytree(ROOT / "src/repro", copied, ignore=lambda folder, names: [n for n in names if "." not in n])
    alone = asked(PYTHONPATH=str(copied.parent))
    assert alone.returncode == 1 and alone.stderr.count("\n") == 1
    assert alone.stderr.startswith("repro: no params.yaml next to a dvc.yaml in")


def test_a_wheel_names_pips_command(monkeypatch):
    said = Refused("TRL is not installed: `make extra-trl` adds it; `make setup`; `make extra-vllm`; `make tour`")
    assert "`make extra-trl` adds it; `make setup`" in str(said)
    monkeypatch.setattr(errors, "WHEEL", True)
    extras = [f"`pip install 'repro-rollouts[{name}]'`" for name in ("trl", "engine", "gpu")]
    assert sentence(said) == f"TRL is not installed: {extras[0]} adds it; {extras[1]}; {extras[2]}; `make tour`"
    assert sentence(ModuleNotFoundError("No module named 'yaml'", name="yaml")).startswith(
        f"yaml is not installed: {extras[1]} installs the engine"
    )
