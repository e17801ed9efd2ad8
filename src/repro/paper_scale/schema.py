"""The schema of a paper's table of hyper-parameters: every value with its source."""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field, model_validator

from repro.settings.fields import Count, NonNegative, Positive, Section, Share

T = TypeVar("T")
Sentence = Annotated[str, Field(min_length=1)]


class Value(Section, Generic[T]):
    """One value and its source: `paper`, the place where the paper states it, or `ours`, the reason for our choice."""

    value: T
    paper: Sentence | None = None
    ours: Sentence | None = None

    @model_validator(mode="after")
    def _has_one_source(self) -> "Value[T]":
        if (self.paper is None) == (self.ours is None):
            raise ValueError("a value has one source: `paper`, the place in it, or `ours`, the reason")
        return self

    @property
    def source(self) -> str:
        return "ours" if self.paper is None else "paper"

    @property
    def why(self) -> str:
        return self.paper or self.ours or ""


class Clip(Section):
    """Distances from a ratio of 1, as verl counts them: 1 − low and 1 + high."""

    low: Value[NonNegative]
    high: Value[NonNegative]


class Saving(Section):
    """What a paper reports that `arm` saves over `against`, to the other's peak on `benchmark` (trained_tokens) or to
    its accuracy there (hours): `factor`, the share of `unit` that is still spent, or `speedup`, its inverse."""

    arm: str
    against: str
    unit: Literal["trained_tokens", "hours"]
    benchmark: str
    factor: Value[Positive] | None = None
    speedup: Value[Positive] | None = None

    @property
    def stated(self) -> Value[float]:
        """The one that the paper prints."""
        stated = self.factor or self.speedup
        assert stated is not None, f"{self.arm} against {self.against}: a saving has a factor or a speedup"
        return stated

    @property
    def share(self) -> float:
        """The share of `unit` that is still spent."""
        return self.stated.value if self.factor else 1 / self.stated.value


class PaperScale(Section):
    """One column of a table of hyper-parameters. Batches count prompts, lengths tokens; `clips` is by objective.

    `hours`: how long the paper reports that an arm ran, training and evaluation together. `aside`: entries of the table
    that no option of verl sets, and what we do about them.
    """

    name: Annotated[str, Field(pattern=r"^paper-[a-z0-9_-]+$", max_length=64)]
    title: str
    paper: Literal["Cost-Aware Learning", "D³S"]
    table: str
    model: Value[str]
    train_data: Value[str]
    train_queries: Value[Count]
    validation_data: Value[list[str]]
    epochs: Value[Count]
    train_batch: Value[Count]
    minibatch: Value[Count]
    group_size: Value[Count]
    learning_rate: Value[Positive]
    warmup_steps: Value[Annotated[int, Field(ge=0)]]
    weight_decay: Value[NonNegative]
    gradient_clip: Value[Positive]
    temperature: Value[Positive]
    top_p: Value[Share]
    max_prompt_tokens: Value[Count]
    max_response_tokens: Value[Count]
    kl: Value[NonNegative]
    entropy: Value[NonNegative]
    clips: dict[str, Clip]
    dual_clip: Value[Positive]
    aggregation: Value[Literal["sequence-mean", "token-mean", "constant-length", "group-mean"]]
    gpu: Value[str]
    nodes: Value[Count]
    gpus_per_node: Value[Count]
    hours: dict[str, Value[Positive]] = Field(default_factory=dict)
    savings: list[Saving] = Field(default_factory=list)
    aside: dict[str, str] = Field(default_factory=dict)

    @property
    def rollouts_per_step(self) -> int:
        """N, the rollouts of one batch."""
        return self.train_batch.value * self.group_size.value

    @property
    def steps(self) -> int:
        """Batches of the whole run; verl drops an epoch's incomplete last batch."""
        return self.epochs.value * (self.train_queries.value // self.train_batch.value)

    @property
    def data_sets(self) -> list[str]:
        """What it trains on, and what it is evaluated on."""
        return [self.train_data.value, *self.validation_data.value]

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return self.nodes.value * self.gpus_per_node.value

    @property
    def values(self) -> dict[str, Value]:
        """Every value by a dotted name, in the order of the schema."""
        values: dict[str, Value] = {}
        for field in type(self).model_fields:
            entry = getattr(self, field)
            if isinstance(entry, Value):
                values[field] = entry
            elif field == "clips":
                for objective, clip in entry.items():
                    values |= {f"clips.{objective}.low": clip.low, f"clips.{objective}.high": clip.high}
            elif field == "hours":
                values |= {f"hours.{arm}": hours for arm, hours in entry.items()}
        return values


class Paper(Section):
    """One file of configs/papers/scales. `selection`: parameters of the paper's samplers, for tests to compare."""

    paper: str
    selection: dict[str, Value[Positive]] = Field(default_factory=dict)
    common: dict[str, Any]
    scales: dict[str, dict[str, Any]]

    def build(self) -> list[PaperScale]:
        """Its scales: each entry on top of the common ones, clips by objective."""
        scales = []
        for name, entries in self.scales.items():
            clips = self.common.get("clips", {}) | entries.get("clips", {})
            whole = {**self.common, **entries, "clips": clips, "name": name, "paper": self.paper}
            scales.append(PaperScale.model_validate(whole))
        return scales
