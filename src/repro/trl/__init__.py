"""The methods on TRL: `ArmTrainer` is its GRPOTrainer with an arm's plan, filter and samplers, under TRL's own loss.

A generation batch of TRL is one step's batch here; the arm selects from it, and what it leaves is read in as many
optimiser steps as TRL makes on the batch. Everything else is TRL's.
"""

from repro.trl.version import require_trl

require_trl()

from repro.trl.trainer import ArmTrainer  # noqa: E402

__all__ = ["ArmTrainer"]
