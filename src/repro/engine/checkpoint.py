"""Checkpoints of a run: written atomically, and tied to the settings and code that made them."""

import io
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from repro.engine.batch import Groups
from repro.files import Unreadable, read_json, write_whole
from repro.policy.adapters import trained
from repro.protocol.ledger import Ledger
from repro.protocol.log import Log
from repro.protocol.memory import Memory
from repro.protocol.saved import LOG
from repro.stored import checked

FINISHED = "run.json"  # the log of a run that has ended, and where and when it was made


class Checkpoints:
    """State of one run at the end of a step, in `folder`; `fingerprint` identifies settings, code and base policy, None
    takes what is there.

    A checkpoint with another fingerprint is from another experiment: it is ignored, never mixed in. `trainer` is a
    repro.engine.train.Trainer, which saves and restores itself through this class.
    """

    def __init__(self, folder: Path, fingerprint: str | None):
        self.folder, self.fingerprint = folder, fingerprint

    def save(self, trainer: Any, step: int) -> None:
        """Replace the run's checkpoint with its state before training step `step`."""
        import torch

        state = {
            "fingerprint": self.fingerprint,
            "step": step,
            "diverged": trainer.diverged,
            "plan": trainer.state(),
            "memory": trainer.memory.state(),
            "model": trained(trainer.model),
            "optimiser": trainer.optimiser.state_dict(),
            "ledger": trainer.ledger.row(),
            "log": asdict(trainer.log),
        }
        whole = io.BytesIO()  # torch's own writing has no words for a full disk
        torch.save(state, whole)
        write_whole(self.folder / "state.pt", lambda partial: partial.write_bytes(whole.getbuffer()))

    def restore(self, trainer: Any) -> int:
        """Load the last saved state into `trainer` and return the step to resume at; 0 if there is none."""
        import torch

        path = self.folder / "state.pt"
        try:
            state = torch.load(path, weights_only=True) if path.exists() else None
        except Exception as error:  # cut, or not our checkpoint; torch's words tell how to load it all the same
            raise Unreadable(
                f"{path} is cut, or no checkpoint ({type(error).__name__}): delete it, and the run starts from its "
                "beginning"
            ) from error
        if state is None or _fingerprint(state) != self.fingerprint or "plan" not in state:  # an earlier version's
            return 0
        trainer.model.load_state_dict(trainer.model.state_dict() | state["model"])
        trainer.optimiser.load_state_dict(state["optimiser"])
        trainer.ledger = Ledger.from_row(state["ledger"])
        trainer.diverged = state["diverged"]
        trainer.restore(state["plan"])
        trainer.memory = Memory.of(state["memory"], Groups.of)
        trainer.log = Log(**state["log"])
        return state["step"]

    def keep_snapshot(self, model: Any, step: int) -> None:
        """Save the weights after `step` training steps, for studies of the policy during training."""
        from safetensors.torch import save

        weights = {name: values.detach().cpu().clone() for name, values in model.state_dict().items()}
        write_whole(self.folder / f"step-{step}.safetensors", lambda partial: partial.write_bytes(save(weights)))

    def snapshots(self) -> dict[int, Path]:
        """{step: file} of the weights saved so far."""
        return {int(path.stem.removeprefix("step-")): path for path in sorted(self.folder.glob("step-*.safetensors"))}

    def finish(self, log: Log, made: Mapping[str, Any] | None = None) -> None:
        """Keep the finished run's log; its last state goes. `made`: where and when."""
        text = json.dumps({"fingerprint": self.fingerprint, "made": dict(made or {}), "log": asdict(log)})
        write_whole(self.folder / FINISHED, lambda partial: partial.write_text(text))
        (self.folder / "state.pt").unlink(missing_ok=True)

    def finished(self) -> Log | None:
        """The log of this run if it is already finished, else None."""
        state = self._read()
        remedy = "delete it, and the run is made again"
        return None if state is None else Log(**checked(state, self.folder / FINISHED, remedy, {"log": LOG})["log"])

    def made(self) -> dict[str, Any]:
        """Where and when the finished run was made; empty if it is not finished, or does not say."""
        made = (self._read() or {}).get("made")
        return made if isinstance(made, dict) else {}

    def _read(self) -> dict[str, Any] | None:
        path = self.folder / FINISHED
        state = read_json(path, "delete it, and the run is made again") if path.exists() else None
        same = self.fingerprint is None or _fingerprint(state) == self.fingerprint
        return state if same and isinstance(state, dict) else None

    def reopen(self) -> None:
        """Let a run that has ended be made again."""
        (self.folder / FINISHED).unlink(missing_ok=True)

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Whether no other process makes this run, nor will while the context lasts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / "lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def remove(self) -> None:
        """Delete the run's files, once its results are stored elsewhere."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _fingerprint(state: Any) -> str | None:
    """Which experiment a file is of; None if it is not our state."""
    return state.get("fingerprint") if isinstance(state, dict) else None
