"""Do the two engines do the same? One training step on both, and one arm trained on both.

`recorded` lets the embedded engine draw, select and make one training step; `replayed` puts the same responses through
verl's side of `repro.verl` (plan file, verdict, scoring pass, selection, loss, gradient, step) in a process of its own;
`curves` trains on verl by its own main loop and examines the policies that it leaves with the embedded engine's
evaluation. repro.experiments.parity.summary compares.
"""

from repro.paths import TIMINGS

ON_VERL = TIMINGS / "parity"  # drawn anew at every run, as verl's replica draws: never compared between machines
