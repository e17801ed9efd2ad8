"""Evaluate a language model on prepared data sets: `python -m repro.evaluation`."""
