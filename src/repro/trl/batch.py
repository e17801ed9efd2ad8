"""One step's rollouts in TRL's tensors: rounds joined, groups kept, rows cut out; and as the samplers see them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad

from repro.methods.lengths import Lengths
from repro.methods.plans import PlannedGroup
from repro.methods.rollouts import Rollouts
from repro.protocol.collect import Drawn

PROMPT = ("prompt_ids", "prompt_mask")  # padded on the left; the others, one entry per completion token, on the right
OLD, REFERENCE, RATIO = "old_per_token_logps", "ref_per_token_logps", "importance_sampling_ratio"
KEPT = (*PROMPT, "completion_ids", "completion_mask", "tool_mask", OLD, "sampling_per_token_logps", REFERENCE, RATIO)
ARRAYS = ("rewards_N", "named_N", "parts_N_F", "place_N")


@dataclass
class Batch(Drawn):
    """Groups with their N rollouts.

    tensors: those of TRL's that an update reads, by TRL's names, N × P or N × T; a ratio of whole sequences N × 1
    rewards_N (those used in training), lengths
    named_N (those that tell rollouts apart: repro.trl.named; by default rewards_N)
    parts_N_F (what each of F reward functions gave, NaN for nothing)
    place_N (int, the place of a rollout among all that were generated for the step, those left out included; -1 where
    it was generated for an earlier one)
    """

    planned: list[PlannedGroup]
    tensors: dict[str, torch.Tensor]
    lengths: Lengths
    rewards_N: np.ndarray
    named_N: np.ndarray
    parts_N_F: np.ndarray
    place_N: np.ndarray

    def __len__(self) -> int:
        return len(self.rewards_N)

    @property
    def signal_N(self) -> np.ndarray:
        return self.named_N

    @property
    def mask_N_T(self) -> torch.Tensor:
        """The completion's tokens that enter the loss (bool): not those that a tool wrote."""
        mask_N_T = self.tensors["completion_mask"].bool()
        return mask_N_T & self.tensors["tool_mask"].bool() if "tool_mask" in self.tensors else mask_N_T

    @property
    def prompt_tokens_N(self) -> np.ndarray:
        return self.tensors["prompt_mask"].sum(1).cpu().numpy()

    @property
    def costs_N(self) -> np.ndarray:
        return self.prompt_tokens_N + self.lengths.tokens_N

    def taken(self, rows: np.ndarray, planned: list[PlannedGroup]) -> "Batch":
        arrays = {name: getattr(self, name)[rows] for name in ARRAYS}
        return Batch(planned, self.cut(rows, trim=False), self.lengths.take(rows), **arrays)

    def joined(self, others: Sequence["Batch"]) -> "Batch":
        """Padded to the widest."""
        parts, tensors = [self, *others], {}
        for name in self.tensors:
            arrays = [part.tensors[name] for part in parts]
            gaps = [max(array.shape[1] for array in arrays) - array.shape[1] for array in arrays]
            sides = [(gap, 0) if name in PROMPT else (0, gap) for gap in gaps]
            padded = [pad(array, side, value=int(name == RATIO)) for array, side in zip(arrays, sides, strict=True)]
            tensors[name] = torch.cat(padded)
        planned, lengths = [group for part in parts for group in part.planned], [part.lengths for part in parts]
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS}
        return Batch(planned, tensors, Lengths.joined(lengths), **arrays)

    def state(self) -> dict[str, Any]:
        """In tensors and plain values, for a checkpoint."""
        arrays = {name: torch.as_tensor(getattr(self, name)) for name in ARRAYS}
        lengths = [torch.as_tensor(np.array(values)) for values in (self.lengths.tokens_N, self.lengths.truncated_N)]
        planned = [(group.query, group.size) for group in self.planned]
        tensors = {name: tensor.cpu() for name, tensor in self.tensors.items()}
        return {"planned": planned, "tensors": tensors, "lengths": (*lengths, self.lengths.longest), "arrays": arrays}

    @classmethod
    def of(cls, state: dict[str, Any], device: Any) -> "Batch":
        """The inverse of `state`."""
        planned = [PlannedGroup(*group) for group in state["planned"]]
        tensors = {name: tensor.to(device) for name, tensor in state["tensors"].items()}
        tokens_N, truncated_N, longest = state["lengths"]
        arrays = {name: values_N.numpy() for name, values_N in state["arrays"].items()}
        return cls(planned, tensors, Lengths(tokens_N.numpy(), truncated_N.numpy(), longest), **arrays)

    def judged(self) -> "Batch":
        """Without the rollouts that no reward function judged; a group may be left with fewer, or with none."""
        rows = np.flatnonzero(np.isfinite(self.rewards_N) & np.isfinite(self.named_N))
        sizes_Q = np.bincount(self.group_N[rows], minlength=len(self.planned)).tolist()
        return self.taken(rows, [replace(group, size=size) for group, size in zip(self.planned, sizes_Q, strict=True)])

    def cut(self, rows: np.ndarray, trim: bool = True) -> dict[str, torch.Tensor]:
        """The tensors of these rows, if `trim` without the columns in which none of them has a token."""
        index = torch.as_tensor(rows, device=self.tensors["prompt_ids"].device)
        tensors = {name: tensor[index] for name, tensor in self.tensors.items()}
        if not trim:
            return tensors
        before, width = int(tensors["prompt_mask"].sum(1).max()), int(self.lengths.tokens_N[rows].max())
        return {
            name: tensor[:, tensor.shape[1] - before :] if name in PROMPT else tensor[:, :width]
            for name, tensor in tensors.items()
        }

    def rollouts(self, advantages_N: np.ndarray) -> Rollouts:
        """The samplers' input, without entropies and log-probabilities."""
        return Rollouts.from_batch(
            group_N=self.group_N,
            rewards_N=self.rewards_N,
            advantages_N=advantages_N,
            prompt_tokens_N=self.prompt_tokens_N,
            response_tokens_N=self.lengths.tokens_N,
            response_mask_N_T=self.mask_N_T.cpu().numpy(),
        )


def gathered(output: dict[str, Any], accelerator: Any, count: int) -> dict[str, torch.Tensor]:
    """Those of TRL's tensors that an update reads (`KEPT`), of all processes in their order; the first `count` rows."""
    tensors = {name: output[name] for name in KEPT if name in output}
    if accelerator.num_processes > 1:
        for name, tensor in tensors.items():
            how = {"pad_index": int(name == RATIO), "pad_first": name in PROMPT}
            tensors[name] = accelerator.gather(accelerator.pad_across_processes(tensor, dim=1, **how))
    return {name: tensor[:count] for name, tensor in tensors.items()}


def lengths_of(completions_N: Sequence[Sequence[int]], ends: Sequence[int], longest: int) -> Lengths:
    """Of completions in token ids: one of `longest` that does not end in one of `ends`, the model's, was cut."""
    truncated_N = np.array([len(ids) >= longest and ids[-1] not in ends for ids in completions_N])
    return Lengths(np.array([max(1, len(ids)) for ids in completions_N]), truncated_N, longest)


def summed(rewards_N_F: torch.Tensor, weights_F: torch.Tensor) -> np.ndarray:
    """rewards_N (float64) of TRL's F reward functions, their weighted sum; NaN where none judged."""
    total_N = (rewards_N_F * weights_F.to(rewards_N_F.device)).nansum(1)
    return total_N.masked_fill(rewards_N_F.isnan().all(1), float("nan")).double().cpu().numpy()
