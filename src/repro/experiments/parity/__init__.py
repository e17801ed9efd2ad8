"""Do verl and TRL do what the embedded engine does? One training step on each, and one arm trained on verl too.

`recorded` lets the embedded engine draw, select and make one training step; `replayed` puts the same responses through
verl's side of `repro.verl` (plan, verdict, scoring pass, selection, loss, gradient, step), `on_trl` through TRL's
training loop; `compared` says how far they are apart, and `batch` does so for every arm in worker processes. `curves`
trains on verl by its own main loop and evaluates the saved policies with the embedded engine's evaluation; `summary`
compares. The stages need both extras: what they write does not depend on which are installed.
"""

from repro.paths import TIMINGS

ON_VERL = TIMINGS / "parity"  # differs at every run, as verl's replica samples: never compared between machines
