"""The sections of params.yaml for studies other than the arms: profiles, their drift, proxies, other queries."""

from typing import Annotated

from pydantic import Field, model_validator

from repro.settings.fields import (
    ArmNames,
    Count,
    Distinct,
    GroupSize,
    Name,
    Section,
    Seed,
    Seeds,
    Share,
    Title,
)


class Fidelity(Section):
    """Per-rollout gradient norms at checkpoints of these arms, every `snapshot_every` steps, on `queries` queries."""

    arms: ArmNames
    snapshot_every: Count
    queries: Count
    group_size: GroupSize


class Predictor(Section):
    """What is measured of `arms`, those that params.yaml has, before training: from each of `policies` of
    runs/design.yaml `batches` of every arm and `reference` groups of every training query, drawn by `seed`."""

    arms: ArmNames
    policies: Annotated[list[Name], Distinct, Field(min_length=2)]
    batches: Annotated[int, Field(ge=2, le=10**6)]
    reference: Annotated[int, Field(ge=2, le=1000)]
    seed: Seed


class Drift(Section):
    """Profiles at checkpoints of these arms, every `snapshot_every` steps, with `samples` of each training query."""

    arms: ArmNames
    snapshot_every: Count
    samples: Count


class Profile(Section):
    """The profiles of the base policy, one per seed: `samples` of each training query, of which arms use the first
    ones."""

    samples: Count


class Parity(Section):
    """verl compared with the embedded engine: both process the first batch of every arm with seed `batch_seed`; `arms`
    are also trained on verl, with `seeds`, for their first `steps` steps."""

    batch_seed: Seed
    arms: Annotated[ArmNames, Field(min_length=1)]
    seeds: Annotated[Seeds, Field(min_length=2)]
    steps: Count


class Mix(Section):
    """Another mix of the same families: {family: share}; missing families have share 0."""

    title: Title
    about: str
    shares: dict[str, Share]

    @model_validator(mode="after")
    def shares_sum_to_one(self):
        total = sum(self.shares.values())
        if abs(total - 1.0) > 1e-9:
            raise ValueError(f"the shares sum to {total:.6g}; make them sum to 1")
        return self
