"""What a stage of the pipeline is."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.settings import Settings

WORDS = {"title", "about", "group"}  # of an arm; no number depends on them
GROUPS = {
    "report": "arms",
    "policy_report": "policy",
    "profile_report": "policy",
    "language_model_report": "policy",
    "fidelity": "results",
    "drift": "results",
    "dynamics": "results",
    "regimes_report": "results",
    "planner": "cluster",
    "parity": "cluster",
}


@dataclass(frozen=True)
class Stage:
    """One stage. `settings(s)` is the part of the settings that its results depend on, no more; `modules` are what an
    arm adds to the notebook's imports; `data` is what its report shows; `report` is None where a stage only makes data.
    `documented`: its report quotes docstrings, so they count as code.
    """

    name: str
    notebook: Path
    settings: Callable[[Settings], dict[str, Any]]
    parameters: dict[str, Any]
    modules: tuple[str, ...] = ()
    data: tuple[Path, ...] = ()
    report: Path | None = None
    title: str = ""
    documented: bool = False

    @property
    def group(self) -> str:
        """Under which heading the index lists its report."""
        kind = self.name.split("-")[0]
        return GROUPS.get(kind, kind)
