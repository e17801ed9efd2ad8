"""repro: which rollouts are worth training on? Three papers, one interface, equal cost."""

__version__ = "0.1.0"
