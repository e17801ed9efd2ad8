"""Do the two engines do the same? One training step on both, and one arm trained on both.

`recorded` lets the embedded engine draw, select and make one training step; `replayed` puts the same responses through
verl's side of `repro.verl` (plan file, verdict, scoring pass, selection, loss, gradient, step), and `batch` does so for
every arm in worker processes; `curves` trains on verl by its own main loop and evaluates the saved policies with the
embedded engine's evaluation; `summary` compares.
"""

from repro.paths import TIMINGS

ON_VERL = TIMINGS / "parity"  # differs at every run, as verl's replica samples: never compared between machines
