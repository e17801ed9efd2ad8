"""A paper's settings as data, each value with its source."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter

from repro.settings.fields import Count, NonNegative, Positive, Section, Share


class Value(Section):
    """One value: `source` is paper, `why` then the place in it; or ours, `why` then the reason for it."""

    value: Any
    source: Literal["paper", "ours"]
    why: Annotated[str, Field(min_length=1)]


def paper(value: Any, where: str) -> Value:
    """A value that the paper states."""
    return Value(value=value, source="paper", why=where)


def ours(value: Any, reason: str) -> Value:
    """A value that the paper leaves out, or that our copy of it has lost."""
    return Value(value=value, source="ours", why=reason)


def _holding(kind: Any) -> Any:
    """The type of a `Value` whose value is of `kind`."""
    adapter = TypeAdapter(kind)

    def check(entry: Value) -> Value:
        adapter.validate_python(entry.value, strict=True)
        return entry

    return Annotated[Value, AfterValidator(check)]


Text, Texts = _holding(str), _holding(list[str])
Whole, WholeOrZero = _holding(Count), _holding(Annotated[int, Field(ge=0)])
Number, NumberOrZero, Fraction = _holding(Positive), _holding(NonNegative), _holding(Share)


class Clip(Section):
    """Distances from a ratio of 1, as verl counts them: 1 − low and 1 + high."""

    low: NumberOrZero
    high: NumberOrZero


class Saving(Section):
    """What a paper says that `arm` saves against `against`: `factor` is the share of `unit` that is still spent to
    reach the peak of the other on `benchmark` (trained_tokens), or its accuracy there (hours)."""

    arm: str
    against: str
    unit: Literal["trained_tokens", "hours"]
    factor: Number
    benchmark: str


class PaperScale(Section):
    """One column of a table of hyper-parameters. Batches count prompts, lengths tokens; `clips` is by objective.

    `hours`: how long the paper says that an arm of that name ran, training and evaluation together. `aside`: entries
    of the table that no option of verl sets, and what we do about them.
    """

    name: Annotated[str, Field(pattern=r"^paper-[a-z0-9.-]+$")]
    title: str
    paper: Literal["Cost-Aware Learning", "D³S"]
    table: str
    model: Text
    train_data: Text
    train_queries: Whole
    validation_data: Texts
    epochs: Whole
    train_batch: Whole
    minibatch: Whole
    group_size: Whole
    learning_rate: Number
    warmup_steps: WholeOrZero
    weight_decay: NumberOrZero
    gradient_clip: Number
    temperature: Number
    top_p: Fraction
    max_prompt_tokens: Whole
    max_response_tokens: Whole
    kl: NumberOrZero
    entropy: NumberOrZero
    clips: dict[str, Clip]
    dual_clip: Number
    gpu: Text
    nodes: Whole
    gpus_per_node: Whole
    hours: dict[str, Number] = Field(default_factory=dict)
    savings: list[Saving] = Field(default_factory=list)
    aside: dict[str, str] = Field(default_factory=dict)

    @property
    def rollouts_per_step(self) -> int:
        """N, the rollouts of one batch."""
        return self.train_batch.value * self.group_size.value

    @property
    def steps(self) -> int:
        """Batches of the whole run; verl leaves out an epoch's incomplete last batch."""
        return self.epochs.value * (self.train_queries.value // self.train_batch.value)

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return self.nodes.value * self.gpus_per_node.value

    @property
    def values(self) -> dict[str, Value]:
        """Every value by a dotted name, in the order of the schema."""
        found: dict[str, Value] = {}
        for field in type(self).model_fields:
            entry = getattr(self, field)
            if isinstance(entry, Value):
                found[field] = entry
            elif field == "clips":
                for objective, clip in entry.items():
                    found |= {f"clips.{objective}.low": clip.low, f"clips.{objective}.high": clip.high}
            elif field == "hours":
                found |= {f"hours.{arm}": hours for arm, hours in entry.items()}
        return found
