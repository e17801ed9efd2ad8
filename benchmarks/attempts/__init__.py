"""Attempts to let nonsense in, and the rule that names how each ended: `python -m benchmarks.attempts`."""
