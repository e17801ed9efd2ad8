"""One batch of the embedded engine: groups with their responses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from repro.engine.generate import Responses
from repro.methods.advantages import groups_without_signal
from repro.methods.lengths import Lengths
from repro.methods.plans import PlannedGroup
from repro.protocol.collect import Drawn


@dataclass
class Groups(Drawn):
    """The embedded engine's: texts, and verdicts_N (the verifier's)."""

    planned: list[PlannedGroup]
    responses: Responses
    texts: list[str]
    verdicts_N: np.ndarray
    rewards_N: np.ndarray

    @property
    def costs_N(self) -> np.ndarray:
        return (self.responses.prompt_tokens_N + self.responses.mask_N_T.sum(1)).cpu().numpy()

    def taken(self, rows: np.ndarray, planned: list[PlannedGroup]) -> "Groups":
        index = torch.as_tensor(rows, device=self.responses.ids_N_T.device)
        return Groups(
            planned,
            Responses(**{name: None if x is None else x[index] for name, x in vars(self.responses).items()}),
            [self.texts[row] for row in rows],
            self.verdicts_N[rows],
            self.rewards_N[rows],
        )

    def joined(self, others: Sequence["Groups"]) -> "Groups":
        """Padded to the widest."""
        parts = [self, *others]
        width = max(part.responses.mask_N_T.shape[1] for part in parts)
        columns = {}
        for name in vars(self.responses):
            arrays = [getattr(part.responses, name) for part in parts]
            if any(array is None for array in arrays):  # what decoding has left of one part alone
                continue
            if "_N_T" in name:
                sides = [(0, 0) * (array.dim() - 2) + (0, width - array.shape[1]) for array in arrays]
                arrays = [torch.nn.functional.pad(*padded) for padded in zip(arrays, sides, strict=True)]
            columns[name] = torch.cat(arrays)
        return Groups(
            [group for part in parts for group in part.planned],
            Responses(**columns),
            [text for part in parts for text in part.texts],
            np.concatenate([part.verdicts_N for part in parts]),
            np.concatenate([part.rewards_N for part in parts]),
        )

    def describe(self) -> dict[str, float]:
        """Metrics over everything generated, kept or not."""
        mask_N_T = self.responses.mask_N_T
        return {
            "reward": float(self.rewards_N.mean()),
            "accuracy": float((self.verdicts_N == 1.0).mean()),
            "groups_without_signal": groups_without_signal(self.rewards_N, self.group_N),
            "entropy": float(self.responses.entropy_N_T[mask_N_T].mean()),
            "response_tokens": float(mask_N_T.sum(1).float().mean()),
            "truncated": float(1.0 - self.responses.finished_N.float().mean()),
        }

    def state(self) -> dict[str, Any]:
        """In values that a checkpoint keeps."""
        return {
            "planned": [(group.query, group.size) for group in self.planned],
            "responses": vars(self.responses),
            "texts": self.texts,
            "verdicts": self.verdicts_N.tolist(),
            "rewards": self.rewards_N.tolist(),
        }

    @classmethod
    def of(cls, state: dict[str, Any]) -> "Groups":
        """The inverse of `state`."""
        planned, responses = [PlannedGroup(*group) for group in state["planned"]], Responses(**state["responses"])
        return cls(planned, responses, state["texts"], np.array(state["verdicts"]), np.array(state["rewards"]))


def lengths_of(responses: Responses, longest: int) -> Lengths:
    """What rewards and advantages may know of responses of at most `longest` tokens."""
    return Lengths(responses.mask_N_T.sum(1).cpu().numpy(), ~responses.finished_N.cpu().numpy(), longest)
