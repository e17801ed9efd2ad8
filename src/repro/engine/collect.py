"""One batch of scored rollouts: the plan's groups, generated and verified, and refilled if the arm filters groups."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch

from repro.engine.generate import Responses
from repro.methods.advantages import groups_without_signal
from repro.methods.lengths import Lengths
from repro.methods.plans import PlannedGroup


@dataclass
class Groups:
    """Groups with their responses: texts, verdicts_N (the verifier's) and rewards_N (those used in training)."""

    planned: list[PlannedGroup]
    responses: Responses
    texts: list[str]
    verdicts_N: np.ndarray
    rewards_N: np.ndarray

    @property
    def group_N(self) -> np.ndarray:
        """0, 0, …, 1, 1, …: the group of each rollout."""
        return np.repeat(np.arange(len(self.planned)), [group.size for group in self.planned])

    @property
    def query_N(self) -> np.ndarray:
        """Each rollout's query, an index into the training pool."""
        return np.repeat([group.query for group in self.planned], [group.size for group in self.planned])

    def outcomes(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(query, rewards_G, costs_G in prompt + response tokens) of each group."""
        costs_N = (self.responses.prompt_tokens_N + self.responses.mask_N_T.sum(1)).cpu().numpy()
        ends = np.cumsum([group.size for group in self.planned])
        for group, end in zip(self.planned, ends, strict=True):
            own = slice(end - group.size, end)
            yield group.query, self.rewards_N[own].copy(), costs_N[own]

    def keep(self, keep_Q: np.ndarray) -> "Groups":
        """Only the groups for which `keep_Q` is true."""
        rows = np.flatnonzero(np.asarray(keep_Q)[self.group_N])
        return self._taken(rows, [group for group, keep in zip(self.planned, keep_Q, strict=True) if keep])

    def grown(self, more_Q: Sequence[int], further: "Groups") -> "Groups":
        """With `more_Q[q]` rollouts of `further`, in order, at the end of each group q."""
        owner_N = np.concatenate([self.group_N, np.repeat(np.arange(len(more_Q)), more_Q)])
        planned = [replace(group, size=group.size + more) for group, more in zip(self.planned, more_Q, strict=True)]
        return join([self, further])._taken(np.argsort(owner_N, kind="stable"), planned)

    def _taken(self, rows: np.ndarray, planned: list[PlannedGroup]) -> "Groups":
        index = torch.as_tensor(rows, device=self.responses.ids_N_T.device)
        return Groups(
            planned,
            Responses(*(getattr(self.responses, part.name)[index] for part in fields(Responses))),
            [self.texts[row] for row in rows],
            self.verdicts_N[rows],
            self.rewards_N[rows],
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


def lengths_of(responses: Responses, longest: int) -> Lengths:
    """What rewards and advantages may know of responses of at most `longest` tokens."""
    return Lengths(responses.mask_N_T.sum(1).cpu().numpy(), ~responses.finished_N.cpu().numpy(), longest)


def join(parts: Sequence[Groups]) -> Groups:
    """Concatenate, padded to the widest."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.responses.mask_N_T.shape[1] for part in parts)
    columns = {}
    for field in fields(Responses):
        arrays = [getattr(part.responses, field.name) for part in parts]
        if field.name.endswith("_N_T"):
            arrays = [torch.nn.functional.pad(array, (0, width - array.shape[1])) for array in arrays]
        columns[field.name] = torch.cat(arrays)
    return Groups(
        [group for part in parts for group in part.planned],
        Responses(**columns),
        [text for part in parts for text in part.texts],
        np.concatenate([part.verdicts_N for part in parts]),
        np.concatenate([part.rewards_N for part in parts]),
    )
