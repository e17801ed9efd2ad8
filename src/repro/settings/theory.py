"""The parameters of the theory notebooks, one section for each notebook `theory/<name>.ipynb`."""

from typing import Annotated

from pydantic import Field, model_validator

from repro.settings.fields import (
    LARGEST,
    SMALLEST,
    Count,
    Exponent,
    NonNegative,
    Positive,
    Section,
    Seed,
    Share,
)

Several = Annotated[int, Field(ge=2, le=LARGEST)]


class SgdTheory(Section):
    """Parameters of notebooks/theory/sgd.ipynb, all ours; the paper's values were not available to us."""

    n_points: Several
    dimension: Count
    norm_low: Positive
    norm_high: Positive
    cost_low: Positive
    cost_high: Positive
    n_iterations: Count
    n_trials: Several
    radius: Positive
    seed: Seed


class SgdRegimesTheory(Section):
    """Parameters of notebooks/theory/sgd_regimes.ipynb; all are our assumptions.

    Norms and costs are log-normal: `norm_spread` and `cost_spread` are the standard deviations of their logarithms,
    ±`correlation` those logarithms' correlation in the negative and the positive regime. `drift`: mean slope of the
    linear problem over its mean |slope|. `n_iterations`: the longest horizon. `learning_rate`: Adam's where one serves
    all samplings. `clip`: the threshold that binds, over the root of the noise at the minimum.
    """

    n_points: Annotated[int, Field(ge=20, le=LARGEST)]
    dimension: Count
    norm_spread: Exponent
    cost_spread: Exponent
    correlation: Annotated[float, Field(gt=0, lt=1)]
    drift: Annotated[float, Field(gt=0, lt=1)]
    radius: Positive
    n_iterations: Annotated[int, Field(ge=512, le=LARGEST)]
    n_trials: Several
    learning_rate: Annotated[float, Field(ge=1e-4, le=0.1)]  # iterations are in proportion to its inverse
    beta_2: Annotated[float, Field(ge=0.5, lt=1)]
    clip: Positive
    dramatic_points: Annotated[list[Annotated[int, Field(ge=5, le=LARGEST)]], Field(min_length=1)]
    seed: Seed


class ProxyTheory(Section):
    """Parameters of notebooks/theory/proxy.ipynb, all our assumptions. `n_groups` and `group_size`: the batch of the
    noise ablation; `beta`: its smoothing."""

    n_components: Several
    norm_low: Positive
    norm_high: Positive
    cost_low: Positive
    cost_high: Positive
    n_instances: Count
    n_draws: Several
    n_groups: Annotated[int, Field(ge=16, le=LARGEST)]  # fewer may all be silent
    group_size: Several
    beta: Annotated[float, Field(gt=0, le=1)]
    seed: Seed


class LowerBoundTheory(Section):
    """Parameters of notebooks/theory/lower_bound.ipynb, all our assumptions. `spread`: highest over lowest cost of the
    simulated instances; the bound is above zero only if n_components is a few times (lipschitz/epsilon)²."""

    n_components: Several
    lipschitz: Positive
    epsilon: Positive
    spread: Annotated[float, Field(ge=1, allow_inf_nan=False)]
    n_trials: Several
    seed: Seed

    @model_validator(mode="after")
    def a_bound_follows(self):
        """There must be a mean slope, at most lipschitz/2, above epsilon + its standard deviation, less a tenth for
        the steps in which `repro.theory.lower_bound` tries them. SGD takes (lipschitz/epsilon)² steps and more."""
        needed = self.epsilon + self.lipschitz / self.n_components**0.5
        if 0.45 * self.lipschitz <= needed or self.epsilon < self.lipschitz / 100:
            raise ValueError(
                f"epsilon {self.epsilon} at lipschitz {self.lipschitz} and n_components {self.n_components} gives no "
                "bound above zero, or takes hours to simulate: take about a twentieth of lipschitz, and 1000 components"
            )
        return self


class SubsetTheory(Section):
    """Parameters of notebooks/theory/subset.ipynb, all ours; the paper gives no instances. `tail`: exponent of the
    Pareto draws; `budgets`: fractions of the sum of norms left out, increasing from 0."""

    n_components: Annotated[int, Field(ge=2, le=16)]  # all subsets are enumerated
    n_instances: Count
    tail: Annotated[float, Field(ge=0.1, le=1 / SMALLEST)]  # draws of a lower one overflow
    n_points: Several
    dimension: Several
    budgets: Annotated[list[Annotated[float, Field(ge=0, lt=1)]], Field(min_length=2)]
    n_iterations: Annotated[int, Field(ge=16, le=LARGEST)]
    n_trials: Several
    seed: Seed


class VarianceTheory(Section):
    """Parameters of notebooks/theory/variance.ipynb. Group size and n (`keep`) are the paper's; the Beta distribution
    of success rates matches its 70% of groups with a signal; everything else is ours."""

    group_size: Annotated[int, Field(ge=4, le=128)]  # all smaller binary groups are enumerated, in cubic time
    keep: Several
    n_vectors: Several
    vocabulary: Several
    length: Annotated[int, Field(ge=1, le=LARGEST)]
    hidden: Count
    sharpness: Annotated[float, Field(ge=0, le=100)]
    n_queries: Count
    n_groups: Several
    batch_groups: Count
    n_batches: Several
    alpha: Positive
    beta: Positive
    seed: Seed

    @model_validator(mode="after")
    def responses_are_enumerable(self):
        if self.length > 12 or self.vocabulary**self.length > 4096:
            raise ValueError(
                f"vocabulary {self.vocabulary} to the power of length {self.length} is over 4096 responses, all of "
                "which are enumerated; make one of them smaller"
            )
        return self


class GroupSizeTheory(Section):
    """Parameters of notebooks/theory/group_size.ipynb, all ours; the paper gives none of them.

    Difficulty is Beta(alpha, beta); K = samples per query; group sizes in rollouts; `unsolvable_share` of the queries
    never solved is kept; the profile is amortised over `passes`, at `profile_price` training rollouts per rollout.
    """

    alpha: Positive
    beta: Positive
    samples: Count
    uniform: Several
    smallest: Several
    largest: Count
    unsolvable_share: Share
    passes: Positive
    profile_price: NonNegative
    margin: Annotated[float, Field(gt=0, lt=0.5)]
    n_groups: Several
    n_queries: Count
    n_trials: Several
    seed: Seed


class Theory(Section):
    """One section for each notebook `theory/<name>.ipynb`."""

    sgd: SgdTheory
    sgd_regimes: SgdRegimesTheory
    proxy: ProxyTheory
    lower_bound: LowerBoundTheory
    subset: SubsetTheory
    variance: VarianceTheory
    group_size: GroupSizeTheory
