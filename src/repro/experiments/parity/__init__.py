"""Does verl do what the embedded engine does? One training step of every arm, and one arm trained on both.

`recorded` lets the embedded engine draw, select and make one training step; `replayed` puts the same responses through
verl's side of `repro.verl` (plan, verdict, scoring pass, selection, loss, gradient, step); `compared` says how far they
are apart, and `batch` does so for every arm in worker processes. `curves` trains on verl by its own main loop and
evaluates the saved policies with the embedded engine's evaluation; `summary` compares. Tests do the same with TRL.
"""

from repro.paths import TIMINGS

ON_VERL = TIMINGS / "parity"  # differs at every run, as verl's replica samples: never compared between machines
