"""The settings of an arm: which rollouts, with which weights, in which loss."""

from collections.abc import Callable
from html import escape
from importlib import import_module
from typing import Any, Literal

from pydantic import Field, field_validator

from repro.errors import Refused, brief, cell
from repro.settings.fields import Count, CountFrom0, LearningRate, NonNegative, Positive, Section, Seeds, Title

LONGEST_NAME = 64  # characters, of a module

# A module's name, or in a notebook a function, and the function's keyword parameters.
Call = tuple[str | Callable[..., Any], dict[str, Any]]


class ProfileUse(Section):
    """The profile an arm uses: K `samples` of each training query from the base policy before training, repeated with
    the current policy `again` times, evenly over the run. Charged to the arm."""

    samples: Count
    again: CountFrom0 = 0


class EngineChanges(Section):
    """What an arm may set differently from section `engine`; None keeps the common value. Sampling settings are not
    among them: profiles, the base policy's evaluation and the reports share them."""

    steps: Count | None = None
    rollouts_per_step: Count | None = None
    minibatch: Count | None = None
    refill_rounds: Count | None = None
    learning_rate: LearningRate | None = None
    weight_decay: NonNegative | None = None
    gradient_clip: Positive | None = None
    kl: NonNegative | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The values that are set."""
        return self.model_dump(exclude_none=True)


WORDS = frozenset({"title", "about", "group"})  # fields of an arm that no number depends on


class Arm(Section):
    """plan → rollouts → reward → filter → memory → advantage → samplers → objective; see the packages of those names.

    `group` groups arms in tables and figures. `aggregation`: how token losses are aggregated
    (repro.methods.objectives.aggregate). `filter`: which groups are kept; the batch is refilled until it is full
    (repro.methods.filters). `memory`: which groups are held, and train again (repro.methods.memories). `seeds`: an arm
    with other seeds measures the noise floor; it is left out of comparisons, which pair arms by seed. `repeat`: a
    number other than 0 makes the runs of an arm of equal parts again. `profile`: the profile its plan uses, None if it
    needs none. `engine`: what it sets differently from section `engine` (`Settings.engine_of`).
    """

    title: Title
    about: str
    group: str
    plan: Call = ("uniform", {})
    reward: Call = ("verified", {})
    filter: Call | None = None
    memory: Call | None = Field(default=None, exclude_if=lambda memory: memory is None)  # keys of runs without stand
    advantage: Call = ("group_normalised", {})
    samplers: list[Call] = Field(default_factory=list)
    objective: Call = ("grpo", {})
    aggregation: Literal["sequence-mean", "token-mean", "constant-length", "group-mean"] = "sequence-mean"
    seeds: Seeds | None = None
    repeat: CountFrom0 = 0
    profile: ProfileUse | None = None
    engine: EngineChanges = EngineChanges()

    @field_validator("plan", "reward", "advantage", "objective", mode="before")
    @classmethod
    def one_call(cls, value: Any) -> Call:
        return _call(value)

    @field_validator("filter", "memory", mode="before")
    @classmethod
    def maybe_a_call(cls, value: Any) -> Call | None:
        return None if value is None else _call(value)

    @field_validator("samplers", mode="before")
    @classmethod
    def many_calls(cls, value: Any) -> list[Call]:
        if not isinstance(value, list):
            raise ValueError(
                f"{brief(value)} should be a list, such as [cost_aware] or [{{cost_aware: {{beta: 0.2}}}}]"
            )
        return [_call(entry) for entry in value]

    def defined(self, name: str) -> str:
        """What defines the arm, for errors."""
        return f"params.yaml: arms.{name}"

    def plot(self) -> Any:
        """What it draws from one batch, as README's picture: an IPython SVG. SettingsError if it cannot be built."""
        from IPython.display import SVG

        return SVG(import_module("repro.plots.of_arms").picture(self))  # of a layer above, and only to be looked at

    def _repr_html_(self) -> str:
        try:
            drawn = import_module("repro.plots.of_arms").picture(self)
        except (Refused, ImportError) as error:  # a part that does not exist, or no jinja2
            drawn = f"<p>{escape(str(error))}</p>"
        return f"<p>{escape(self.about)}</p>{drawn}<pre>{escape(repr(self))}</pre>"

    @property
    def calls(self) -> list[tuple[str, str | Callable[..., Any], dict[str, Any]]]:
        """(package, module or function, parameters) of each of this arm's parts."""
        parts = [("plans", self.plan), ("rewards", self.reward)]
        parts += [("filters", self.filter)] if self.filter else []
        parts += [("memories", self.memory)] if self.memory else []
        parts += [("advantages", self.advantage), *(("samplers", call) for call in self.samplers)]
        parts += [("objectives", self.objective)]
        return [(package, name, parameters) for package, (name, parameters) in parts]


class OwnArm(Arm):
    """An arm that code defines, such as a cell of a notebook (`Settings.with_arms`)."""

    def defined(self, name: str) -> str:
        functions = [getattr(part, "func", part) for _, part, _ in self.calls if callable(part)]
        cells = dict.fromkeys(cell(of.__code__.co_filename) for of in functions if hasattr(of, "__code__"))
        known = ", ".join(filter(None, cells))
        return f"arm {name} ({known})" if known else f"arm {name}"


def _call(value: Any) -> Call:
    if isinstance(value, str):
        return _named(value), {}
    if callable(value):
        return value, {}
    if isinstance(value, (list, tuple)) and [isinstance(part, dict) for part in value] == [False, True]:
        name = _named(value[0]) if isinstance(value[0], str) else value[0]
        return name, dict(value[1])  # as `model_dump` writes it
    if isinstance(value, dict) and len(value) == 1:
        [(name, parameters)] = value.items()
        if isinstance(name, str) and isinstance(parameters, dict):
            return _named(name), dict(parameters)
    raise ValueError(f"{brief(value)} should be a name, or one `name: {{parameter: value}}`")


def _named(name: str) -> str:
    """The name of a module; ValueError where it begins with an underscore, as what Python itself has in every module
    does, or is too long for a file's."""
    if name.startswith("_") or len(name) > LONGEST_NAME:
        raise ValueError(f"{brief(name)} is no name of a method: one begins with a letter, and is that of its file")
    return name
