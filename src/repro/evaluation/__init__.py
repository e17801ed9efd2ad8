"""How well a real language model answers prepared data sets: `python -m repro.evaluation`."""
