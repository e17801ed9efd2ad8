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
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class SettingsError(ValueError):
    """One sentence: which key of params.yaml, what is wrong with it, how to mend it."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Family(Section):
    """One kind of query: a reasoning-gym data set with its options."""

    dataset: Literal["chain_sum", "products", "gcd"]  # repro.tasks writes their prompts and demonstrations
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

    @model_validator(mode="after")
    def shares_fit(self):
        if self.direct + self.wordy > 1:
            raise ValueError(f"direct {self.direct} + wordy {self.wordy} exceed 1; the rest are plain steps")
        return self


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
    weight_decay: NonNegative
    gradient_clip: Positive
    kl: NonNegative
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
    """Parameters of notebooks/theory_sgd.ipynb; the paper's values were not available to us, these are ours."""

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

    @model_validator(mode="after")
    def low_to_high(self):
        for name in ("norm", "cost"):
            low, high = getattr(self, f"{name}_low"), getattr(self, f"{name}_high")
            if low > high:
                raise ValueError(f"{name}_low {low} is above {name}_high {high}; swap them")
        return self


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
    """plan + advantage + samplers + objective; see the packages of those names."""

    title: str
    about: str
    plan: Call = ("uniform", {})
    advantage: Call = ("group_normalised", {})
    samplers: list[Call] = []
    objective: Call = ("grpo", {})

    @field_validator("plan", "advantage", "objective", mode="before")
    @classmethod
    def one_call(cls, value: Any) -> Call:
        return _call(value)

    @field_validator("samplers", mode="before")
    @classmethod
    def many_calls(cls, value: Any) -> list[Call]:
        if not isinstance(value, list):
            raise ValueError(f"{value!r} should be a list, such as [cost_aware] or [{{cost_aware: {{beta: 0.2}}}}]")
        return [_call(entry) for entry in value]

    @property
    def calls(self) -> list[tuple[str, str, dict[str, Any]]]:
        """(package, module, parameters) of everything this arm is made of."""
        parts = [("plans", self.plan), ("advantages", self.advantage)]
        parts += [*(("samplers", call) for call in self.samplers), ("objectives", self.objective)]
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
        if self.policy.source is None and self.engine.max_new_tokens >= self.policy.max_length:
            raise ValueError("policy.max_length must exceed engine.max_new_tokens by the length of the longest prompt")
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
    if isinstance(value, (list, tuple)) and [type(part) for part in value] == [str, dict]:
        return value[0], dict(value[1])  # as `model_dump` writes it
    if isinstance(value, dict) and len(value) == 1:
        [(name, parameters)] = value.items()
        if isinstance(name, str) and isinstance(parameters, dict):
            return name, dict(parameters)
    raise ValueError(f"{value!r} should be a name, or one `name: {{parameter: value}}`")


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a mapping with the same key twice; plain YAML readers keep the last and drop the first in silence."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key, (mark, _) in zip(keys, node.value, strict=True):
            if keys.count(key) > 1:
                raise SettingsError(
                    f"params.yaml: the key {key!r} stands twice, again near line {mark.start_mark.line + 1}"
                )
        return super().construct_mapping(node, deep)


def load(path: Path = PARAMS, **overrides: Any) -> Settings:
    """The settings of `path`, its scale merged in; `overrides` replace top-level keys first (`scale="smoke"`)."""
    try:
        raw = yaml.load(path.read_text(), _UniqueKeys)
    except yaml.YAMLError as error:
        raise SettingsError(f"{path.name} is not valid YAML: {' '.join(str(error).split())}") from error
    return parse({**_mapping(raw, path.name), **overrides})


def parse(raw: dict[str, Any]) -> Settings:
    """Settings from the mapping in params.yaml; SettingsError in one sentence."""
    scales = _mapping(raw.get("scales"), "scales")
    scale = raw.get("scale")
    if scale not in scales:
        raise SettingsError(f"params.yaml: scale: there is no scale {scale!r}{nearest(str(scale), scales)}")
    plain = {key: value for key, value in raw.items() if key != "scales"}
    checked = {}
    for name in sorted(scales, key=lambda name: name != scale):  # the others are checked too: a slip there would wait
        merged = _merge(plain, _mapping(scales[name], f"scales.{name}"))
        checked[name] = _validate({**merged, "scale": name}, "" if name == scale else f" (at scale {name})")
    return checked[scale]


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingsError(f"params.yaml: {where} is {value!r}; it should be a mapping of keys to values")
    return value


def _merge(base: dict[str, Any], replacements: dict[str, Any]) -> dict[str, Any]:
    """`base` with `replacements` laid over it, mapping by mapping; the schema refuses what does not belong."""
    merged = dict(base)
    for key, value in replacements.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merge(base[key], value) if both else value
    return merged


def _validate(plain: dict[str, Any], where: str) -> Settings:
    try:
        return Settings.model_validate(plain)
    except ValidationError as error:
        raise SettingsError(f"params.yaml{where}: {_sentence(error)}") from None


def _sentence(error: ValidationError) -> str:
    """The first complaint of pydantic as one sentence about a key of params.yaml."""
    errors = error.errors()
    first = next((entry for entry in errors if entry["type"] == "extra_forbidden"), errors[0])  # a misspelt key is both
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        fields = _fields_at(first["loc"][:-1])
        return f"unknown key {place!r}{nearest(first['loc'][-1], fields)}"
    if first["type"] == "missing":
        return f"the key {place!r} is missing; add it"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{place + ': ' if place else ''}{' '.join(message.split())}"
    if first["type"] == "string_pattern_mismatch":
        return f"{first['input']!r} in {first['loc'][0]}: a name is lower-case letters, digits, dots and hyphens"
    if first["type"] == "float_type" and isinstance(first["input"], str) and "e" in first["input"]:
        message += ", which YAML reads from 1.0e-4 but not from 1e-4"
    return f"{place} is {first['input']!r}: {message[0].lower() + message[1:]}"


def _fields_at(location: tuple) -> list[str]:
    """Names of the fields of the section at `location`, for the nearest-name hint."""
    kind: Any = Settings
    for part in location:
        kind = kind.model_fields[part].annotation if isinstance(kind, type) else kind.__args__[-1]
    return list(kind.model_fields)
