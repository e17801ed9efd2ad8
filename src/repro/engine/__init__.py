"""Engines run rollouts and updates. `embedded`: one process, torch and transformers, on a CPU or one GPU."""
