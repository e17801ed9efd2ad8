"""repro: which rollouts are worth training on? Three papers, one interface, equal cost."""

from typing import Any

from repro import errors  # noqa: F401, before all else: it words what goes wrong in importing the rest

__version__ = "0.1.0"
# Imported when they are asked for: `import repro` is quick, and repro.methods needs little more than numpy.
DOORS = {"compare": "repro.front", "load": "repro.front", "train": "repro.training"}


def __getattr__(name: str) -> Any:
    if name not in DOORS:
        raise AttributeError(f"module 'repro' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(DOORS[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *DOORS})
