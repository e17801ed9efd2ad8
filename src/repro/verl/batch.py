"""Convert one step's rollouts: from verl's queue to `Rollouts` for the samplers, and back to rows to train on.

verl stores a rollout under the key `{uid}_{session}_{output}`, with its fields as nested tensors without padding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from repro.methods.objectives.aggregate import Aggregation
from repro.methods.rollouts import Rollouts

# Fields of a rollout that an update reads, besides those set by samplers; others (texts, tool calls) are not copied.
TRAINED = ("prompts", "responses", "input_ids", "position_ids", "attention_mask", "old_log_probs", "ref_log_prob")
OPTIONAL = ("rollout_is_weights", "rollout_log_probs", "routed_experts", "multi_modal_inputs")


@dataclass(frozen=True)
class Scored:
    """N responses with the verifier's verdicts, whether trained on or not; all are charged.

    group_N (int, 0, 0, 1, …), query_N (the data set's index of each query), prompt_tokens_N, response_tokens_N,
    verdicts_N (float), finished_N (bool: not truncated).
    """

    group_N: np.ndarray
    query_N: np.ndarray
    prompt_tokens_N: np.ndarray
    response_tokens_N: np.ndarray
    verdicts_N: np.ndarray
    finished_N: np.ndarray

    def __len__(self) -> int:
        return len(self.group_N)

    @classmethod
    def read(cls, keys: Sequence[str], fields: TensorDict, eos: int, limit: int) -> "Scored":
        """From the queue's rows of `keys`, ordered by group. A response of `limit` tokens that does not end with `eos`
        was truncated; a shorter one ended with one of the model's stop tokens."""
        uids = [key.split("_")[0] for key in keys]
        places = {uid: place for place, uid in enumerate(dict.fromkeys(uids))}
        responses = rows_of(fields["responses"])
        return cls(
            group_N=np.array([places[uid] for uid in uids], int),
            query_N=np.array(plain(fields["index"])),
            prompt_tokens_N=np.array([len(row) for row in rows_of(fields["prompts"])]),
            response_tokens_N=np.array([len(row) for row in responses]),
            verdicts_N=np.array([float(row.sum()) for row in rows_of(fields["rm_scores"])]),
            finished_N=np.array([len(row) < limit or int(row[-1]) == eos for row in responses]),
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


def rollouts_of(scored: Scored, fields: TensorDict, rewards_N: np.ndarray, advantages_N: np.ndarray) -> Rollouts:
    """The samplers' input. Entropy and log-probability come from verl's scoring pass; who reads them where it did not
    compute them (`bypass_mode` gives no entropy) is told so."""
    mask_N_T = padded(rows_of(fields["response_mask"]), bool)
    signals = {}
    for name, field in (("entropy_N_T", "entropy"), ("logprob_N_T", "old_log_probs")):
        if field in fields:
            signals[name] = padded(rows_of(fields[field]), np.float32) * mask_N_T
    return Rollouts.from_batch(
        group_N=scored.group_N,
        rewards_N=rewards_N,
        advantages_N=advantages_N,
        prompt_tokens_N=scored.prompt_tokens_N,
        response_tokens_N=scored.response_tokens_N,
        response_mask_N_T=mask_N_T,
        **signals,
    )


def merged(part: Rollouts, aggregation: Aggregation) -> Rollouts:
    """A mini-batch with fewer rows to read and the same policy gradient: draws of one rollout with the same mask become
    one row with the sum of their weights, and rows without a gradient are left out.

    The divisor of sequence means is the caller's, who keeps `len(part)`. verl's token-mean divides by the tokens of the
    rows it gets; the weights are multiplied by the share of tokens that is left. Not with a KL or entropy term, which
    verl computes of every row once, whatever its weight.
    """
    keys = [(row, mask.tobytes()) for row, mask in zip(part.row_N.tolist(), part.response_mask_N_T, strict=True)]
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    place_N = np.array([places[key] for key in keys])
    _, first_M = np.unique(place_N, return_index=True)
    summed_M = np.bincount(place_N, part.weights_N)
    rows = part.take(first_M, summed_M / part.weights_N[first_M])
    bears_M = (rows.advantages_N != 0) & rows.response_mask_N_T.any(1)
    if not bears_M.any():
        return part
    rows = rows.take(bears_M)
    if aggregation != "token-mean":
        return rows
    left = rows.response_mask_N_T.sum() / part.response_mask_N_T.sum()
    return rows.take(np.arange(len(rows)), np.full(len(rows), left))


def training_rows(
    fields: TensorDict, part: Rollouts, ranks: int, aggregation: Aggregation = "sequence-mean"
) -> TensorDict:
    """The rows of one mini-batch in verl's format, with equal numbers and similar cost for each of `ranks`.

    A rollout drawn twice is two rows, unless `part` is `merged`. Its weight multiplies its advantage (which commutes
    with the clip, see repro.methods.rollouts); the mask of tokens in the loss is `response_mask` and, for verl's
    token-mean, `loss_mask`.
    Under group-mean, which verl lacks, so does the weight of its group, which therefore does not reach verl's KL term.
    If `ranks` does not divide the mini-batch, it is padded with copies of its shortest row with all tokens masked: they
    add 0 to every sum.
    """
    from verl.utils.tensordict_utils import index_select_tensor_dict

    fill = -len(part) % ranks
    take = np.concatenate([np.arange(len(part)), np.full(fill, np.argmin(part.costs_N))])
    counts_M = np.arange(len(take)) < len(part)
    take, counts_M = (array[balanced(part.costs_N[take], ranks)] for array in (take, counts_M))

    known = [name for name in (*TRAINED, *OPTIONAL) if name in fields]
    rows = index_select_tensor_dict(fields.select(*known), torch.as_tensor(part.row_N[take]))
    lengths_M = part.response_tokens_N[take]
    weights_N = part.weights_N * (part.group_weight_N if aggregation == "group-mean" else 1.0)
    weighted_M = (part.advantages_N * weights_N)[take] * counts_M
    mask_M_T = part.response_mask_N_T[take] & counts_M[:, None]
    masks = [torch.as_tensor(mask[:length]).long() for mask, length in zip(mask_M_T, lengths_M, strict=True)]
    rows["response_mask"], rows["loss_mask"] = nested(masks), nested(masks)
    rows["advantages"] = nested(
        [torch.full((int(length),), float(value)) for length, value in zip(lengths_M, weighted_M, strict=True)]
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
