"""repro: which rollouts are worth training on? Three papers, one interface, equal cost."""

from repro import errors  # noqa: F401, before all else: it words what goes wrong in importing the rest

__version__ = "0.1.0"
