"""How far a trainer's side of one step is from the embedded engine's: what every trainer's row is made of."""

from typing import Any

import numpy as np
import torch

from repro.experiments.parity.recorded import Recorded
from repro.methods.rollouts import Rollouts

SAME = ("same_verdicts", "same_finished", "same_rollouts")


def nothing_drawn(arm: str, same_plan: bool) -> dict[str, Any]:
    """The row of a step of which a filter left no group."""
    counts = dict.fromkeys(("rollouts", "selected", "tokens"), 0)
    return {"arm": arm, "same_plan": same_plan, **counts, **dict.fromkeys(SAME, True)}


def selections(
    recorded: Recorded,
    verdicts_N: np.ndarray,
    finished_N: np.ndarray,
    selected: Rollouts | None,
    logprob_M_T: np.ndarray | None,
) -> dict[str, Any]:
    """Whether the two sides chose the same: rollouts (index by index, in order; or none, where there is no signal),
    weights, tokens. `logprob_M_T`: the trainer's of the selected rollouts, NaN where it scored none."""
    embedded = recorded.selected
    both = embedded is not None and selected is not None
    same = np.array_equal(embedded.row_N, selected.row_N) if both else embedded is selected
    return {
        "rollouts": len(recorded.query_N),
        "selected": len(embedded) if embedded is not None else 0,
        "same_verdicts": np.array_equal(recorded.verdicts_N, verdicts_N),
        "same_finished": np.array_equal(recorded.finished_N, finished_N),
        "same_rollouts": same,
        "tokens": int(embedded.response_mask_N_T.sum()) if embedded is not None else 0,
        **(_gaps(embedded, selected, logprob_M_T) if both and same else {}),
    }


def steps(
    recorded: Recorded, losses: list[float], gradients: list[torch.Tensor], before_P: torch.Tensor, move_P: torch.Tensor
) -> dict[str, float]:
    """Of the mini-batches: loss, in units of the mean |weight · advantage|; gradients and the change of the weights,
    norm of the difference over the norm. The first mini-batch's gradient also by itself: before any optimiser step both
    sides have the same weights. And the change against the one that AdamW makes of the trainer's own gradients, since
    Adam moves a weight whose gradient is only rounding as far as any other. NaN where the numbers of mini-batches
    differ.

    before_P, move_P: the trainer's weights before the step and their change."""
    selected = recorded.selected
    scale = float(np.mean(np.abs(selected.advantages_N * selected.weights_N)))
    alike = len(gradients) == len(recorded.gradients_M_P)
    return {
        "loss_difference": abs(float(np.mean(losses)) - recorded.loss) / scale,
        "first_gradient_error": _error(gradients[0], recorded.gradients_M_P[0]) if alike else float("nan"),
        "gradient_error": _error(torch.stack(gradients), recorded.gradients_M_P) if alike else float("nan"),
        "optimiser_error": _error(move_P, adam_move(before_P, gradients, recorded.adam)),
        "step_error": _error(move_P, recorded.move_P),
    }


def adam_move(weights_P: torch.Tensor, gradients: list[torch.Tensor], options: dict[str, Any]) -> torch.Tensor:
    """The change that AdamW with `options`, beginning at weights_P, makes of one gradient after another."""
    moved = torch.nn.Parameter(weights_P.clone())
    optimiser = torch.optim.AdamW([moved], **options)
    for gradient_P in gradients:
        moved.grad = gradient_P.to(weights_P).clone()
        optimiser.step()
    return moved.detach() - weights_P


def _error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual - expected).norm() / expected.norm())


def _gaps(embedded: Rollouts, selected: Rollouts, logprob_M_T: np.ndarray) -> dict[str, Any]:
    """Between the two sides' versions of one selection: largest differences of weights and log-probabilities, tokens
    that count on one side only."""
    width = min(embedded.response_mask_N_T.shape[1], selected.response_mask_N_T.shape[1])
    mask, other = (side.response_mask_N_T[:, :width] for side in (embedded, selected))
    gaps = np.abs(embedded.logprob_N_T[:, :width] - logprob_M_T[:, :width])
    gaps = gaps[np.arange(width) < embedded.response_tokens_N[:, None]]
    return {
        "weight_difference": float(np.max(np.abs(embedded.weights_N - selected.weights_N))),
        "other_tokens": int((mask != other).sum()),
        "logprob_difference": float(np.nanmax(gaps)) if np.isfinite(gaps).any() else float("nan"),
    }
