"""The papers' own scale: every value of their tables of hyper-parameters with its source, as presets of verl's.

configs/verl/presets/papers has a file for each paper and in it one `PaperScale` for each column of its tables. Each
value records where the paper states it, or that we chose it, and why.
"""

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import pandas as pd
from pydantic import Field, model_validator

from repro.paths import CONFIGS
from repro.settings import ON_VERL, Arm, Settings
from repro.settings.fields import Count, NonNegative, Positive, Section, Share
from repro.settings.text import read_mapping

FILES = sorted((CONFIGS / "verl" / "presets" / "papers").glob("*.yaml"))
# Ours: the papers state the final evaluation (32 outputs to a question) but no rhythm before it.
EVALUATION = {**ON_VERL, "samples": 1, "final_samples": 32}
EVALUATE_EVERY = 20  # steps
CHECKPOINT_EVERY = 10  # steps; the most that an interrupted run loses
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
KEYS = {  # of verl's: the field that it takes the value of
    "data.train_batch_size": "train_batch",
    "data.max_prompt_length": "max_prompt_tokens",
    "data.max_response_length": "max_response_tokens",
    f"{ACTOR}.ppo_mini_batch_size": "minibatch",
    f"{ACTOR}.clip_ratio_c": "dual_clip",
    f"{ACTOR}.optim.lr": "learning_rate",
    f"{ACTOR}.optim.lr_warmup_steps": "warmup_steps",
    f"{ACTOR}.optim.weight_decay": "weight_decay",
    f"{ACTOR}.optim.clip_grad": "gradient_clip",
    f"{ACTOR}.grad_clip": "gradient_clip",
    f"{ACTOR}.kl_loss_coef": "kl",
    f"{ACTOR}.entropy_coeff": "entropy",
    f"{ROLLOUT}.n": "group_size",
    f"{ROLLOUT}.temperature": "temperature",
    f"{ROLLOUT}.top_p": "top_p",
    f"{ROLLOUT}.val_kwargs.temperature": "temperature",
    f"{ROLLOUT}.val_kwargs.top_p": "top_p",
}

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


class PaperScale(Section):
    """One column of a table of hyper-parameters. Batches count prompts, lengths tokens; `clips` is by objective.

    `aside`: entries of the table that no option of verl sets, and what we do about them.
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
    def overrides(self) -> dict[str, Any]:
        """Its values by verl's keys."""
        return {key: getattr(self, field).value for key, field in KEYS.items()} | {
            f"{ACTOR}.use_kl_loss": self.kl.value > 0,
            f"{ACTOR}.fsdp_config.seed": "${repro.seed}",
            "repro.scale": self.name,
            "repro.best": self.validation_data.value[0],
            "trainer.project_name": self.name,
            "trainer.total_training_steps": self.steps,
            "trainer.save_freq": CHECKPOINT_EVERY,
            "trainer.test_freq": EVALUATE_EVERY,
        }

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
        return values


class Paper(Section):
    """One file of configs/verl/presets/papers. `selection`: the paper's of its samplers, for tests to compare."""

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


def read(path: Path) -> tuple[Paper, list[PaperScale]]:
    """A paper's table and its scales."""
    paper = Paper.model_validate(read_mapping(path))
    return paper, paper.build()


_READ = {path.stem: read(path) for path in FILES}
PAPERS: dict[str, Paper] = {stem: paper for stem, (paper, _) in _READ.items()}
SCALES: dict[str, PaperScale] = {scale.name: scale for _, scales in _READ.values() for scale in scales}


def steps_at(scale: PaperScale, settings: Settings, arm: str) -> int:
    """The steps of an arm at a scale; one with steps of its own keeps its share."""
    own = settings.arm(arm).engine.steps
    return round(settings.steps_of(arm) / settings.engine.steps * scale.steps) if own else scale.steps


def arm_at(scale: PaperScale, arm: Arm) -> Arm:
    """The arm with the table's aggregation, group size and clip, where the arm sets none and its parts have them."""
    clip = scale.clips.get(arm.objective[0])
    own = "aggregation" in arm.model_fields_set
    return arm.model_copy(
        update={
            "aggregation": arm.aggregation if own else scale.aggregation.value,
            "plan": with_group(arm.plan, scale.group_size.value),
            "objective": _completed(
                "objectives", arm.objective, {"clip_low": clip.low.value, "clip_high": clip.high.value} if clip else {}
            ),
        }
    )


def with_group(plan: tuple[Any, dict[str, Any]], size: int) -> tuple[Any, dict[str, Any]]:
    """A plan with groups of `size`, unless it sets their size, or has none to set."""
    return _completed("plans", plan, {"group_size": size})


def _completed(package: str, part: tuple[Any, dict[str, Any]], given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A part of an arm with those of `given` that it takes and does not set; repro.arms refuses a wrong name."""
    name, own = part
    try:
        function = getattr(importlib.import_module(f"repro.methods.{package}.{name}"), name)
    except (ModuleNotFoundError, AttributeError):
        return name, own
    takes = inspect.signature(function).parameters
    return name, {key: value for key, value in given.items() if key in takes} | own


def values_table(scale: PaperScale) -> pd.DataFrame:
    """setting, value, source, why: every value of a scale, and the entries of its table that verl has no option for."""
    rows = [(name, _shown(entry.value), entry.source, entry.why) for name, entry in scale.values.items()]
    rows += [(name, "–", "paper", f"{scale.table}; {treatment}") for name, treatment in scale.aside.items()]
    return pd.DataFrame(rows, columns=["setting", "value", "source", "why"])


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
