"""Convert one step's rollouts: from verl's queue to `Rollouts` for the samplers, and back to rows to train on.

verl stores a rollout under the key `{uid}_{session}_{output}`, with its fields as nested tensors without padding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from repro.methods.lengths import Lengths
from repro.methods.objectives.aggregate import Aggregation
from repro.methods.plans import PlannedGroup
from repro.methods.rollouts import Rollouts
from repro.protocol.collect import Drawn
from repro.verl.loss import COPIES

# Fields of a rollout that an update reads, besides those set by samplers; others (texts, tool calls) are not copied.
TRAINED = ("prompts", "responses", "input_ids", "position_ids", "attention_mask", "old_log_probs", "ref_log_prob")
OPTIONAL = ("rollout_is_weights", "rollout_log_probs", "routed_experts", "multi_modal_inputs")


@dataclass(frozen=True)
class Scored(Drawn):
    """Groups with their N responses in verl's queue, and the verifier's verdicts.

    keys_N (the queue's), index_N (the data set's index of each query), prompt_tokens_N, response_tokens_N, verdicts_N
    (float), finished_N (bool: not truncated), rewards_N (float). `queued`: their fields, where they outlive the queue.
    """

    planned: list[PlannedGroup]
    keys_N: np.ndarray
    index_N: np.ndarray
    prompt_tokens_N: np.ndarray
    response_tokens_N: np.ndarray
    verdicts_N: np.ndarray
    finished_N: np.ndarray
    rewards_N: np.ndarray
    queued: TensorDict | None = None

    @property
    def costs_N(self) -> np.ndarray:
        return self.prompt_tokens_N + self.response_tokens_N

    def taken(self, rows: np.ndarray, planned: list[PlannedGroup]) -> "Scored":
        queued = None if self.queued is None else rows_taken(self.queued, rows)
        return Scored(planned, **{name: values_N[rows] for name, values_N in self._columns()}, queued=queued)

    def joined(self, others: Sequence["Scored"]) -> "Scored":
        parts = [self, *others]
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name, _ in self._columns()}
        queued = None if self.queued is None else rows_joined([part.queued for part in parts])
        return Scored([group for part in parts for group in part.planned], **columns, queued=queued)

    def _columns(self) -> list[tuple[str, np.ndarray]]:
        return [(part.name, getattr(self, part.name)) for part in fields(self) if part.name.endswith("_N")]

    def lengths(self, longest: int) -> Lengths:
        """What rewards and advantages may know of responses of at most `longest` tokens."""
        return Lengths(self.response_tokens_N, ~self.finished_N, longest)

    @classmethod
    def read(
        cls,
        planned: list[PlannedGroup],
        keys: Sequence[str],
        fields: TensorDict,
        eos: int | Sequence[int],
        limit: int,
    ) -> "Scored":
        """From the queue's rows of `keys`, in the order of the groups; rewards are the verdicts. A response of `limit`
        tokens that does not end with `eos`, the model's end or ends, was truncated."""
        responses = rows_of(fields["responses"])
        verdicts_N = np.array([float(row.sum()) for row in rows_of(fields["rm_scores"])])
        return cls(
            planned,
            keys_N=np.array(keys),
            index_N=np.array(plain(fields["index"])),
            prompt_tokens_N=np.array([len(row) for row in rows_of(fields["prompts"])]),
            response_tokens_N=np.array([len(row) for row in responses]),
            verdicts_N=verdicts_N,
            finished_N=np.array([len(row) < limit or bool(np.isin(int(row[-1]), eos)) for row in responses]),
            rewards_N=verdicts_N,
        )


def in_plan_order(keys: Sequence[str], place: Mapping[str, int]) -> list[str]:
    """Keys sorted by their group's place in the plan, then session and output: an order independent of timing."""

    def order(key: str) -> tuple[int, int, int]:
        uid, session, output = key.rsplit("_", 2)
        return place[uid], int(session), int(output)

    return sorted(keys, key=order)


def plain(field: Any) -> list[Any]:
    """A field of plain values as a list, whichever wrapper the queue returned."""
    return field.tolist() if hasattr(field, "tolist") else list(field)


def rows_of(field: torch.Tensor) -> list[torch.Tensor]:
    """The rows of a field, a nested tensor or, if all lengths are equal, a plain one."""
    return list(field.unbind())


def nested(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows of any lengths as one nested tensor. (`nested_tensor_from_jagged` would not record the maximum length, and
    verl would then pad to the sum of lengths.)"""
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)


def padded(rows: Sequence[torch.Tensor], dtype: Any) -> np.ndarray:
    """N × T, zeros on the right."""
    array = np.zeros((len(rows), max(map(len, rows))), dtype)
    for row, values in enumerate(rows):
        array[row, : len(values)] = values.float().numpy()
    return array


def signals_of(fields: TensorDict, mask_N_T: np.ndarray) -> dict[str, np.ndarray]:
    """entropy_N_T and logprob_N_T, of verl's scoring pass; only those that it made."""
    names = {"entropy_N_T": "entropy", "logprob_N_T": "old_log_probs"}
    known = {name: field for name, field in names.items() if field in fields}
    return {name: padded(rows_of(fields[field]), np.float32) * mask_N_T for name, field in known.items()}


def rows_taken(fields: TensorDict, row_M: np.ndarray) -> TensorDict:
    """These rows, in that order."""
    from verl.utils.tensordict_utils import index_select_tensor_dict

    return index_select_tensor_dict(fields, torch.as_tensor(row_M))


def rows_joined(parts: Sequence[TensorDict]) -> TensorDict:
    """The rows of all parts, with the tensors that each of them has."""
    names = [name for name in parts[0].keys() if all(isinstance(part.get(name), torch.Tensor) for part in parts)]  # noqa: SIM118
    columns = {name: nested([row for part in parts for row in rows_of(part[name])]) for name in names}
    return TensorDict(columns, batch_size=[sum(map(len, parts))])


def rollouts_of(scored: Scored, fields: TensorDict, advantages_N: np.ndarray) -> Rollouts:
    """The samplers' input. Entropy and log-probability come from verl's scoring pass; reading them where it did not
    compute them (`bypass_mode` gives no entropy) is an error."""
    mask_N_T = padded(rows_of(fields["response_mask"]), bool)
    return Rollouts.from_batch(
        group_N=scored.group_N,
        rewards_N=scored.rewards_N,
        advantages_N=advantages_N,
        prompt_tokens_N=scored.prompt_tokens_N,
        response_tokens_N=scored.response_tokens_N,
        response_mask_N_T=mask_N_T,
        **signals_of(fields, mask_N_T),
    )


@dataclass(frozen=True)
class MiniBatch:
    """`part`: what one optimiser step trains on, as the samplers drew it; `read`: the rows of it that verl reads;
    `copies_M`: for each of these, how many rows of `part` it stands for, in the terms that a weight does not multiply
    (KL divergence, entropy)."""

    part: Rollouts
    read: Rollouts
    copies_M: np.ndarray

    @property
    def row_M(self) -> np.ndarray:
        """Positions in the batch of the rollouts that are read."""
        return self.read.row_N


def merged(part: Rollouts, aggregation: Aggregation, *, every_row: bool = False) -> MiniBatch:
    """A mini-batch with fewer rows to read and the same gradient: draws of one rollout with the same mask become one
    row with the sum of their weights, and rows without a gradient are left out.

    `every_row`: there is a KL or entropy term, of which every draw has its share whatever its weight or advantage: only
    rows without a token are left out, and `copies_M` is the number of draws. That is exact, since both terms are sums
    over rows.
    The divisor of sequence means is the caller's, who keeps `len(part)`. verl's token-mean divides by the tokens of the
    rows it gets; weights and copies are multiplied by the share of tokens that is left.
    """
    keys = [(row, mask.tobytes()) for row, mask in zip(part.row_N.tolist(), part.response_mask_N_T, strict=True)]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    place_N = np.array([places[key] for key in keys])
    _, first_M, copies_M = np.unique(place_N, return_index=True, return_counts=True)
    summed_M = np.bincount(place_N, part.weights_N)
    rows = part.take(first_M, summed_M / part.weights_N[first_M])
    bears_M = rows.response_mask_N_T.any(1) & (every_row | (rows.advantages_N != 0))
    if not bears_M.any():
        return MiniBatch(part, part, np.ones(len(part)))
    rows, copies_M = rows.take(bears_M), copies_M[bears_M].astype(float)
    if aggregation == "token-mean":
        left = rows.response_mask_N_T.sum() / part.response_mask_N_T.sum()
        rows, copies_M = rows.take(np.arange(len(rows)), np.full(len(rows), left)), copies_M * left
    return MiniBatch(part, rows, copies_M)


def selected_rows(fields: TensorDict, row_M: np.ndarray) -> TensorDict:
    """What an update or a scoring pass reads of the rollouts `row_M`, in that order."""
    return rows_taken(fields.select(*[name for name in (*TRAINED, *OPTIONAL) if name in fields]), row_M)


def for_ranks(costs_M: np.ndarray, ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """(take_R, counts_R): rows in an order that gives each of `ranks` equally many and about the same cost. If `ranks`
    does not divide them, the shortest is repeated; the repetitions do not count."""
    fill = -len(costs_M) % ranks
    take_R = np.concatenate([np.arange(len(costs_M)), np.full(fill, np.argmin(costs_M))])
    order = balanced(costs_M[take_R], ranks)
    return take_R[order], (np.arange(len(take_R)) < len(costs_M))[order]


def scoring_rows(
    fields: TensorDict, row_M: np.ndarray, costs_M: np.ndarray, ranks: int
) -> tuple[TensorDict, np.ndarray]:
    """(rows for one of verl's scoring passes, the places in it of the rollouts `row_M`)."""
    take_R, counts_R = for_ranks(costs_M, ranks)
    rows = selected_rows(fields, row_M[take_R])
    masks = rows_of(fields["response_mask"])
    mask = nested([masks[row].long() * int(counts) for row, counts in zip(row_M[take_R], counts_R, strict=True)])
    rows["response_mask"], rows["loss_mask"] = mask, mask
    return rows, np.flatnonzero(counts_R)[np.argsort(take_R[counts_R])]


def training_rows(
    fields: TensorDict,
    part: Rollouts,
    ranks: int,
    aggregation: Aggregation = "sequence-mean",
    copies_M: np.ndarray | None = None,
) -> TensorDict:
    """The rows of one mini-batch in verl's format, with equal numbers and similar cost for each of `ranks`.

    A rollout drawn twice is two rows, unless `part` is `merged`; then `copies_M` says how often each was drawn. Its
    weight multiplies its advantage (which commutes with the clip, see repro.methods.rollouts); the mask of tokens in
    the loss is `response_mask` and, for verl's token-mean, `loss_mask`. Under group-mean, which verl lacks, the weight
    of its group multiplies both. Filled up by rows with all tokens masked (`for_ranks`): they add 0 to every sum.
    """
    take, counts_M = for_ranks(part.costs_N, ranks)
    rows = selected_rows(fields, part.row_N[take])
    lengths_M = part.response_tokens_N[take]
    group_N = part.group_weight_N if aggregation == "group-mean" else np.ones(len(part))
    weighted_M = (part.advantages_N * part.weights_N * group_N)[take] * counts_M
    shares_M = ((np.ones(len(part)) if copies_M is None else copies_M) * group_N)[take]
    mask_M_T = part.response_mask_N_T[take] & counts_M[:, None]
    masks = [torch.as_tensor(mask[:length]).long() for mask, length in zip(mask_M_T, lengths_M, strict=True)]
    rows["response_mask"], rows["loss_mask"] = nested(masks), nested(masks)
    for name, values_M in (("advantages", weighted_M), (COPIES, shares_M)):
        rows[name] = nested(
            [torch.full((int(length),), float(value)) for length, value in zip(lengths_M, values_M, strict=True)]
        )
    return rows


def loss_of(value: float, part: Rollouts) -> float:
    """verl's loss of a mini-batch; 0, as in the embedded engine, if token selection leaves no token in it: verl's mean
    over tokens is then 0/0, while its gradient is 0."""
    return value if part.response_mask_N_T.any() else 0.0


def balanced(costs_M: np.ndarray, ranks: int) -> np.ndarray:
    """An order of the rows in which `ranks` equal chunks have about the same cost (by verl's partition)."""
    from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

    if ranks == 1:
        return np.arange(len(costs_M))
    workload = calculate_workload(torch.as_tensor(costs_M)).tolist()
    parts = get_seqlen_balanced_partitions(workload, k_partitions=ranks, equal_size=True)
    return np.concatenate([np.array(part, int) for part in parts])
