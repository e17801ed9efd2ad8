"""Snapshots of a policy in training: which ones an experiment reads, and how one is loaded."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.files import NotThere, Unreadable
from repro.policy.model import load_policy
from repro.settings import Settings

BASE = "base"  # the arm's name for the policy before any training


@dataclass(frozen=True)
class Checkpoint:
    """A policy to measure: `weights` replace those of the base policy in the folder `policy`; None: the base itself."""

    arm: str
    seed: int
    step: int
    policy: Path
    weights: Path | None
    settings: Settings


def list_checkpoints(
    settings: Settings,
    policy: Path,
    arms: Iterable[str],
    folders: Mapping[tuple[str, int], Path],
    every: int | None = None,
) -> list[Checkpoint]:
    """The base policy once per seed, then the snapshots of `arms`, arm by arm, seed by seed: all that training keeps,
    or only those of every `every`-th step. `folders`: of each arm and seed (repro.training.weights)."""
    checkpoints = [Checkpoint(BASE, seed, 0, policy, None, settings) for seed in settings.seeds]
    for arm in arms:
        for seed in settings.seeds_of(arm):
            for step in settings.snapshots_of(arm):
                if every is None or step % every == 0:
                    weights = folders[arm, seed] / f"step-{step}.safetensors"
                    checkpoints.append(Checkpoint(arm, seed, step, policy, weights, settings))
    return checkpoints


def require_weights(checkpoints: Iterable[Checkpoint]) -> None:
    """FileNotFoundError if a snapshot is missing, with the remedy; call it before minutes of work."""
    for checkpoint in checkpoints:
        if checkpoint.weights is not None and not checkpoint.weights.exists():
            raise NotThere(f"{checkpoint.weights} does not exist: run the same again, and its run is made again")


def load_checkpoint(checkpoint: Checkpoint) -> tuple[Any, Any]:
    """(model, tokenizer). FileNotFoundError or ValueError when the weights are missing or do not fit."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    require_weights([checkpoint])
    model, tokenizer = load_policy(checkpoint.policy, checkpoint.settings.engine.device)
    if checkpoint.weights is None:
        return model, tokenizer
    state = model.state_dict()
    try:
        weights = load_file(checkpoint.weights)
    except (SafetensorError, OSError) as error:
        raise Unreadable(
            f"{checkpoint.weights} cannot be read ({error}): delete it, and its run is made again"
        ) from error
    places = {state[name].data_ptr() for name in weights if name in state}  # a tied weight is stored once
    missing = [name for name, value in state.items() if value.data_ptr() not in places]
    if missing or set(weights) - set(state):
        odd = (missing or sorted(set(weights) - set(state)))[0]
        raise Unreadable(f"{checkpoint.weights} does not fit the base policy at {odd}: train the arm again")
    model.load_state_dict(weights, strict=False)
    return model, tokenizer
