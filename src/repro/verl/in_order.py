"""Requests that name their place in a batch, so that repro.verl.hf_rollout samples a batch alike in whatever order its
requests arrive.

verl starts the requests of a batch side by side, each when the queue has noted it, so they arrive in any order. With a
replica for each of several ranks, the one that is least busy gets the next request, which stays a matter of timing.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils

from repro.verl.batch import plain
from repro.verl.data import SIZE

FIELDS = ("batch_name", "batch_requests", "batch_place")  # of a prompt
PLACE = "place"  # among the parameters of a request, for the server


class Place(NamedTuple):
    """`batch`: its name, the same in a run that is resumed; `requests`: their number in it."""

    batch: str
    requests: int
    prompt: int
    session: int


class InOrder:
    """verl's agent loops; every prompt they are given has `FIELDS`."""

    def __init__(self, loops: Any, responses: int, validation_responses: int):
        self.loops, self.responses, self.validation_responses = loops, responses, validation_responses
        self.phase, self.serial = "", 0

    def generate_sequences(self, prompts: TensorDict) -> None:
        validates = "validate" in prompts and bool(prompts["validate"])
        phase = f"{'validation' if validates else 'training'} {prompts['global_steps']}"
        self.serial = self.serial + 1 if phase == self.phase else 0
        self.phase = phase
        each = self.validation_responses if validates else self.responses
        sizes = plain(prompts[SIZE]) if SIZE in prompts else [each] * len(prompts)
        tensordict_utils.assign_non_tensor_data(prompts, FIELDS[0], f"{phase} {self.serial}")
        tensordict_utils.assign_non_tensor_data(prompts, FIELDS[1], int(sum(sizes)))
        prompts[FIELDS[2]] = torch.arange(len(prompts))
        self.loops.generate_sequences(prompts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loops, name)


def with_place(parameters: dict[str, Any], prompt: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of one response's request, with its `Place` where the prompt has `FIELDS`."""
    if FIELDS[0] not in prompt:
        return parameters
    batch, requests, place = (prompt[name] for name in FIELDS)
    return {**parameters, PLACE: Place(batch, int(requests), int(place), int(prompt["session_id"]))}
