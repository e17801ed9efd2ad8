"""The papers' data sets in verl's format, and the verification of answers: `python -m repro.data`."""
