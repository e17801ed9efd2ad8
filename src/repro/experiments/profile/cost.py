"""The cost of a profile, compared with a training step on equal groups of the same queries."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from repro.policy.flops import FlopCounter
from repro.protocol.ledger import Ledger
from repro.protocol.profile import Profile


def profile_ledger(profile: Profile, flops: FlopCounter) -> Ledger:
    """The cost of all samples of a profile: what an arm that uses them is charged."""
    ledger = Ledger()
    ledger.charge_profile(flops, profile.prompt_tokens_Q, profile.response_tokens_Q_K)
    return ledger


def training_flops(profile: Profile, flops: FlopCounter, group: int) -> float:
    """FLOPs per rollout of a training step in equal groups of `group`, with the profile's lengths and verdicts:
    generation, and a forward and backward pass over every rollout of a group with a signal; the others have no
    gradient, so that they are not computed (their tokens are in `paper_tokens`)."""
    lengths_Q_K, correct_Q_K = profile.response_tokens_Q_K[:, :group], profile.correct_Q_K[:, :group]
    signal_Q = correct_Q_K.any(1) & ~correct_Q_K.all(1)
    ledger, n_rollouts = Ledger(), lengths_Q_K.size
    sizes_Q = np.full(len(lengths_Q_K), lengths_Q_K.shape[1])
    ledger.charge_generation(flops, profile.prompt_tokens_Q, sizes_Q, lengths_Q_K.reshape(-1))
    tokens_Q_K = lengths_Q_K + profile.prompt_tokens_Q[:, None]
    ledger.charge_update(flops, tokens_Q_K[signal_Q].reshape(-1), paper_tokens=int(tokens_Q_K.sum()))
    return ledger.flops / n_rollouts


def price(profile: Profile, flops: FlopCounter, group: int) -> float:
    """FLOPs of a rollout of the profile, relative to a rollout of training."""
    ledger = profile_ledger(profile, flops)
    return ledger.flops / ledger.rollouts / training_flops(profile, flops, group)


def costs(
    profiles: Mapping[int, Profile], flops: FlopCounter, used: int, group: int, rollouts_per_step: int
) -> pd.DataFrame:
    """One row (index) for all samples of a profile, for the first `used`, and for a training step in groups of `group`:
    means over seeds of rollouts, tokens (generated), flops, and steps (the FLOPs in training steps)."""
    step = np.mean([training_flops(profile, flops, group) for profile in profiles.values()]) * rollouts_per_step
    lengths = [profile.response_tokens_Q_K.mean() for profile in profiles.values()]
    rows = {}
    for samples in dict.fromkeys((next(iter(profiles.values())).samples, used)):
        ledgers = [profile_ledger(profile.first(samples), flops) for profile in profiles.values()]
        spent = float(np.mean([ledger.flops for ledger in ledgers]))
        rows[f"profile, K = {samples}"] = {
            "rollouts": ledgers[0].rollouts,
            "tokens": float(np.mean([ledger.generated_tokens for ledger in ledgers])),
            "flops": spent,
            "steps": spent / step,
        }
    rows["a training step"] = {
        "rollouts": rollouts_per_step,
        "tokens": float(np.mean(lengths)) * rollouts_per_step,
        "flops": float(step),
        "steps": 1.0,
    }
    return pd.DataFrame.from_dict(rows, orient="index")
