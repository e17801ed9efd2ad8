"""A sampler from a Python file anywhere on disk."""

import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path

from repro.arms import run_file
from repro.settings import SettingsError


def sampler_in(path: Path) -> Callable:
    """The one public function that the file at `path` defines.

    The file is run but not entered among the imported modules, so worker processes are sent the function itself.
    SettingsError if the file cannot be run, does not end, or does not define exactly one.
    """
    if not path.is_file():
        raise SettingsError(f"{path} is not a file: give one that defines a sampler, such as examples/own_sampler.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None:
        raise SettingsError(f"{path} is not a Python file: its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    run_file(str(path), lambda: spec.loader.exec_module(module))
    own = inspect.getmembers(module, lambda value: inspect.isfunction(value) and value.__module__ == path.stem)
    public = [function for name, function in own if not name.startswith("_")]
    if len(public) != 1:
        names = ", ".join(function.__name__ for function in public) or "none"
        raise SettingsError(f"{path} defines {names}: it should define one sampler; helpers begin with an underscore")
    return public[0]
