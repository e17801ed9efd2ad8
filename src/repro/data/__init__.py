"""The papers' data sets as verl reads them, and the verification of answers: `python -m repro.data`."""
