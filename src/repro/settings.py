"""The settings: `params.yaml` through one typed schema. Every key is described here and nowhere else.

`load()` merges the chosen scale into the defaults and refuses an unknown key, a wrong type, an impossible value or a
misspelt arm in one sentence that names the place and, where there is one, the nearest valid name.
"""

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from repro.paths import PARAMS

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SettingsError(ValueError):
    """One sentence: which key of params.yaml, what is wrong with it, how to mend it."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Family(Section):
    """One kind of query: a reasoning-gym data set with its options."""

    dataset: str
    share: Share
    emphasis: Positive = 1.0
    options: dict[str, int] = {}


class Task(Section):
    seed: int
    train_queries: Count
    evaluation_queries: Count
    pretraining_queries: Count
    families: dict[str, Family]

    @model_validator(mode="after")
    def shares_sum_to_one(self):
        total = sum(family.share for family in self.families.values())
        if abs(total - 1.0) > 1e-9:
            raise ValueError(f"the shares of task.families sum to {total:.6g}; make them sum to 1")
        return self


class Demonstrations(Section):
    """Shares of answers at once and of wordy steps (the rest: steps), and the probabilities of a slip."""

    direct: Share
    wordy: Share
    slip_per_step: Share
    slip_direct: Share


class Policy(Section):
    """The base policy: architecture and pre-training (unused when `source` names a model)."""

    source: str | None
    hidden: Count
    layers: Count
    heads: Count
    max_length: Count
    seed: int
    threads: Count
    steps: Count
    batch: Count
    learning_rate: Positive
    demonstrations: Demonstrations
    describe_groups: Count
    group_size: Annotated[int, Field(ge=2)]

    @model_validator(mode="after")
    def heads_divide(self):
        if self.hidden % self.heads:
            raise ValueError(f"policy.hidden {self.hidden} is not a multiple of policy.heads {self.heads}")
        return self


class Engine(Section):
    """One training run; every arm gets the same."""

    device: Literal["cpu", "cuda"]
    dtype: Literal["float32", "bfloat16"]
    steps: Count
    rollouts_per_step: Count
    minibatch: Count
    slice_tokens: Count
    max_new_tokens: Count
    temperature: Positive
    aggregation: Literal["sequence-mean", "token-mean"]
    learning_rate: Positive
    weight_decay: Annotated[float, Field(ge=0)]
    gradient_clip: Positive
    kl: Annotated[float, Field(ge=0)]
    kl_probe: Annotated[int, Field(ge=0)]
    workers: Count
    checkpoint_every: Count
    kept_rollouts: Annotated[int, Field(ge=0)]


class Evaluation(Section):
    every: Count
    samples: Count
    final_samples: Count
    batch_rollouts: Count
    temperature: Positive


class SgdTheory(Section):
    """Parameters of notebooks/theory_sgd.ipynb; the paper's values were stripped from our text, these are ours."""

    n_points: Annotated[int, Field(ge=2)]
    dimension: Count
    norm_low: Positive
    norm_high: Positive
    cost_low: Positive
    cost_high: Positive
    n_iterations: Count
    n_trials: Annotated[int, Field(ge=2)]
    radius: Positive
    seed: int


class Theory(Section):
    sgd: SgdTheory


class Statistics(Section):
    """`levels`: shares of the baseline's rise from start to peak at which costs are compared. Bootstrap: resamples,
    confidence of the intervals, and the seed that makes them the same at every run."""

    levels: list[Annotated[float, Field(gt=0, le=1)]]
    resamples: Annotated[int, Field(ge=100)]
    confidence: Annotated[float, Field(gt=0, lt=1)]
    seed: int


Call = tuple[str, dict[str, Any]]  # a module's name and its function's keyword parameters


class Arm(Section):
    """plan + samplers + objective; see the packages of those names."""

    title: str
    about: str
    plan: Call = ("uniform", {})
    samplers: list[Call] = []
    objective: Call = ("grpo", {})

    @field_validator("plan", "objective", mode="before")
    @classmethod
    def one_call(cls, value: Any) -> Call:
        return _call(value)

    @field_validator("samplers", mode="before")
    @classmethod
    def many_calls(cls, value: Any) -> list[Call]:
        return [_call(entry) for entry in value or []]

    @property
    def calls(self) -> list[tuple[str, str, dict[str, Any]]]:
        """(package, module, parameters) of everything this arm is made of."""
        parts = [("plans", self.plan), *(("samplers", call) for call in self.samplers), ("objectives", self.objective)]
        return [(package, name, parameters) for package, (name, parameters) in parts]


class Settings(Section):
    """Everything, the scale's replacements merged in."""

    scale: str
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    baseline: str
    arms: Annotated[dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")], Arm], Field(min_length=1)]
    task: Task
    policy: Policy
    engine: Engine
    evaluation: Evaluation
    theory: Theory
    statistics: Statistics

    @model_validator(mode="after")
    def consistent(self):
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds {self.seeds} names a seed twice; a repeated run is not a new one")
        if self.baseline not in self.arms:
            raise ValueError(f"baseline: there is no arm {self.baseline!r}{nearest(self.baseline, self.arms)}")
        if self.engine.rollouts_per_step % self.engine.minibatch:
            raise ValueError("engine.rollouts_per_step must be a multiple of engine.minibatch")
        return self

    def arm(self, name: str) -> Arm:
        """The arm of that name; SettingsError with the nearest name if there is none."""
        if name not in self.arms:
            raise SettingsError(f"there is no arm {name!r} in params.yaml{nearest(name, self.arms)}")
        return self.arms[name]


def nearest(name: str, valid: Any) -> str:
    """`; did you mean 'x'?`, or the list of valid names when none is near."""
    near = difflib.get_close_matches(str(name), [str(entry) for entry in valid], n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; valid names: {', '.join(map(str, valid))}"


def _call(value: Any) -> Call:
    if isinstance(value, str):
        return value, {}
    if isinstance(value, dict) and len(value) == 1:
        [(name, parameters)] = value.items()
        return name, dict(parameters or {})
    if isinstance(value, (list, tuple)) and len(value) == 2:
        return value[0], dict(value[1])
    raise ValueError(f"{value!r} should be a name, or one `name: {{parameter: value}}`")


def load(path: Path = PARAMS, **overrides: Any) -> Settings:
    """The settings of `path`, its scale merged in; `overrides` replace top-level keys first (`scale="smoke"`)."""
    try:
        raw = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise SettingsError(f"{path.name} is not valid YAML: {' '.join(str(error).split())}") from error
    return parse({**raw, **overrides})


def parse(raw: dict[str, Any]) -> Settings:
    """Settings from the mapping in params.yaml; SettingsError in one sentence."""
    scales = raw.get("scales") or {}
    scale = raw.get("scale")
    if scale not in scales:
        raise SettingsError(f"scale: there is no scale {scale!r} in params.yaml{nearest(str(scale), scales)}")
    plain = {key: value for key, value in raw.items() if key != "scales"}
    for name, replacements in scales.items():  # the other scales are checked too: a slip there waits for nobody
        merged = _merge(plain, replacements or {}, f"scales.{name}")
        settings = _validate({**merged, "scale": name})
        if name == scale:
            chosen = settings
    return chosen


def _merge(base: dict[str, Any], replacements: dict[str, Any], where: str) -> dict[str, Any]:
    merged = dict(base)
    for key, value in replacements.items():
        if key not in base:
            raise SettingsError(f"{where}: unknown key {key!r}{nearest(key, base)}")
        both = isinstance(value, dict) and isinstance(base[key], dict)
        merged[key] = _merge(base[key], value, f"{where}.{key}") if both else value
    return merged


def _validate(plain: dict[str, Any]) -> Settings:
    try:
        return Settings.model_validate(plain)
    except ValidationError as error:
        raise SettingsError(_sentence(error, plain)) from None


def _sentence(error: ValidationError, plain: dict[str, Any]) -> str:
    """The first complaint of pydantic as one sentence about a key of params.yaml."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        fields = _fields_at(first["loc"][:-1])
        return f"params.yaml: unknown key {place!r}{nearest(first['loc'][-1], fields)}"
    if first["type"] == "missing":
        return f"params.yaml: the key {place!r} is missing; add it"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"params.yaml: {place + ': ' if place else ''}{' '.join(message.split())}"
    return f"params.yaml: {place} is {first['input']!r}: {message[0].lower() + message[1:]}"


def _fields_at(location: tuple) -> list[str]:
    """Names of the fields of the section at `location`, for the nearest-name hint."""
    kind: Any = Settings
    for part in location:
        kind = kind.model_fields[part].annotation if isinstance(kind, type) else kind.__args__[-1]
    return list(kind.model_fields)
