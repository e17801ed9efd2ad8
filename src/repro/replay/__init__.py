"""Your own rollouts, before a GPU hour: what each arm would have trained on, and what that would have cost.

`python -m repro.replay DUMP` reads the files that a trainer wrote and gives a page; `replay` is the same as a function.
No model is loaded, so what needs one is named and left out: gradients, entropies, log-probabilities. `watch` shows the
same while TRL trains.
"""

from repro.replay.live import Watch, watch
from repro.replay.over_steps import Replay, replay
from repro.replay.reading import Dump, NoRollouts, read

__all__ = ["Dump", "NoRollouts", "Replay", "Watch", "read", "replay", "watch"]
