"""Checkpoints of a run: written whole or not at all, tied to the settings and the code that made them."""

import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from repro.engine.ledger import Ledger

if TYPE_CHECKING:
    from repro.engine.embedded.train import Log, Trainer


class Checkpoints:
    """State of one run at the end of a step, in `folder`; `fingerprint` says of what (settings, code, base policy).

    A checkpoint with another fingerprint is from another experiment: it is left out, never mixed in.
    """

    def __init__(self, folder: Path, fingerprint: str):
        self.folder, self.fingerprint = folder, fingerprint

    def save(self, trainer: "Trainer", step: int) -> None:
        """Replace the run's checkpoint by its state before training step `step`."""
        self._write(
            "state.pt",
            {
                "step": step,
                "groups_taken": trainer.plan.taken,
                "model": trainer.model.state_dict(),
                "optimiser": trainer.optimiser.state_dict(),
                "ledger": trainer.ledger.row(),
                "log": asdict(trainer.log),
            },
        )

    def restore(self, trainer: "Trainer") -> int:
        """Put the last saved state into `trainer` and return the step to go on with; 0 when there is none."""
        state = self._read("state.pt")
        if state is None:
            return 0
        trainer.model.load_state_dict(state["model"])
        trainer.optimiser.load_state_dict(state["optimiser"])
        trainer.ledger = Ledger.from_row(state["ledger"])
        trainer.plan.skip(state["groups_taken"])
        for name, rows in state["log"].items():
            setattr(trainer.log, name, rows)
        return state["step"]

    def finish(self, log: "Log") -> None:
        """Keep the finished run's log until all seeds of the arm are done."""
        self._write("finished.pt", {"log": asdict(log)})

    def finished(self) -> "Log | None":
        """The log of this run if it was finished before, else None."""
        from repro.engine.embedded.train import Log

        state = self._read("finished.pt")
        return Log(**state["log"]) if state else None

    def remove(self) -> None:
        """Forget the run: its results are safe elsewhere."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self, name: str, state: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / f"{name}.partial"
        torch.save({**state, "fingerprint": self.fingerprint}, partial)
        os.replace(partial, self.folder / name)

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.folder / name
        if not path.exists():
            return None
        state = torch.load(path, weights_only=True)
        return state if state["fingerprint"] == self.fingerprint else None
