"""The design: runs/design.yaml as typed values, and the list of its runs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from repro import paths
from repro import settings as settings_module
from repro.errors import brief
from repro.settings import Settings, SettingsError, nearest
from repro.settings.fields import NAMES, Count, Distinct, LearningRate, Name, Section, Seeds, Temperature
from repro.settings.text import read_mapping
from repro.stats.panels import RATE

Changes = dict[str, Any]  # a part of params.yaml that replaces what stands there


class Panel(Section):
    """A full cross of arms (or names of `groups`), base policies, seeds and the values of `vary`, for one question.

    `rates`: in place of `arms`, learning rates of each arm of its own. `repeats`: the panel whose runs it makes again,
    on another kind of CPU; everything but the question is that panel's. `declared`: the commit since which the design
    has the panel as it is, before its first run.

    `vary`: {key of params.yaml, with dots: its values}; the key `mix` means one of `mixes`. `settings`: what all runs
    of the panel set differently, and arms of its own. `stop_at`: runs end when they have paid as many times the bill
    of `evaluation`, which is the base policy's own, and not after `engine.steps`. `temperatures`: {temperature:
    samples of a held-out query} of the policy that a run ends with, and of its base policy. `rollouts`: git keeps the
    logged rollouts of its runs too, which reports on arms show.
    """

    question: str
    declared: Annotated[str, Field(pattern="^[0-9a-f]{7,40}$")] | None = None
    repeats: Name | None = None
    arms: list[str] = Field(default_factory=list)
    rates: dict[Name, Annotated[list[LearningRate], Distinct, Field(min_length=1)]] = Field(default_factory=dict)
    policies: Annotated[list[Name], Distinct, Field(min_length=1)]
    seeds: Seeds
    vary: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)
    settings: Changes = Field(default_factory=dict)
    stop_at: Annotated[float, Field(ge=0.01, le=1000)] | None = None
    temperatures: dict[Temperature, Count] = Field(default_factory=dict)
    rollouts: bool = False

    @model_validator(mode="after")
    def consistent(self):
        if bool(self.arms) == bool(self.rates):
            raise ValueError("it needs either arms or rates")
        if self.temperatures and self.stop_at:
            raise ValueError("temperatures: they are asked of weights after engine.steps: no stop_at")
        return self


class Design(Section):
    """`baseline`: that pages on panels compare with. `settings`: over params.yaml, for every run. `beds`: whole
    sections in place of those of params.yaml, by name. `policies`: base policies by name, each with what it sets
    itself, `bed` being one of `beds`. `groups`: lists of arms by name."""

    baseline: Name = "grpo"
    settings: Changes
    beds: dict[Name, Changes] = Field(default_factory=dict)
    policies: dict[Name, Changes]
    groups: dict[Name, list[str]]
    panels: dict[Name, Panel]

    @model_validator(mode="before")
    @classmethod
    def repeat(cls, raw: Any) -> Any:
        """A panel that repeats another has what that one has."""
        panels = raw.get("panels") if isinstance(raw, dict) else None
        if not isinstance(panels, dict):
            return raw
        known = {name: panel for name, panel in panels.items() if isinstance(panel, dict)}
        for name, panel in known.items():
            if "repeats" not in panel:
                continue
            first = known.get(str(panel["repeats"]))
            if first is None or "repeats" in first:
                raise ValueError(f"panels.{name}.repeats: there is no panel {panel['repeats']!r} to repeat")
            if more := sorted(set(panel) - {"question", "repeats", "declared"}):
                raise ValueError(f"panels.{name}: it repeats {panel['repeats']} and cannot set {more[0]!r} itself")
            panels = {**panels, name: {**first, **panel}}
        return {**raw, "panels": panels}


@dataclass(frozen=True)
class Cell:
    """One run. `varied`: (key, value) pairs, in the order of the panel's `vary`."""

    panel: str
    policy: str
    arm: str
    seed: int
    varied: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """The same in the design, in the data and on the command line."""
        varied = [f"{key}={json.dumps(value)}" for key, value in self.varied]
        return "/".join([self.panel, self.policy, *varied, self.arm, str(self.seed)])

    @property
    def facts(self) -> dict[str, Any]:
        """What the table `runs` says of it, whoever has made it."""
        own = {"panel": self.panel, "policy": self.policy, "arm": self.arm, "seed": self.seed}
        return {"run": self.name, **own, "varied": json.dumps(dict(self.varied))}

    @property
    def setting(self) -> tuple:
        """What runs with equal settings and base policy share."""
        return self.panel, self.policy, self.varied


def load(path: Path | None = None, *, strict: bool = True) -> Design:
    """The design, checked; SettingsError of one sentence that names the key. `strict`: an arm of it must be in
    params.yaml, too, as it must to be trained."""
    path = path or paths.DESIGN
    try:
        if not path.exists():
            raise SettingsError(f"{path} is not there: runs are declared in a clone of the repository")
        design = Design.model_validate(read_mapping(path))
    except ValidationError as error:
        first = error.errors()[0]
        where, message = ".".join(map(str, first["loc"])), " ".join(first["msg"].split())
        message = NAMES if first["type"] == "string_pattern_mismatch" or "[key]" in first["loc"] else message
        where = f"{' '.join(where.split())[:100]}: " if where else ""
        raise SettingsError(f"{path.name}: {where}{message.removeprefix('Value error, ')}") from None
    for name, policy in design.policies.items():
        if (bed := policy.get("bed")) is not None and bed not in list(design.beds):  # it may have no hash
            near = nearest(str(bed), design.beds)
            raise SettingsError(f"{path.name}: policies.{name}.bed: there is no bed {brief(bed)}{near}")
    for name, panel in design.panels.items():
        for policy in panel.policies:
            if policy not in design.policies:
                near = nearest(policy, design.policies)
                raise SettingsError(f"{path.name}: panels.{name}: there is no policy {policy!r}{near}")
        known = settings_of(design, Cell(name, panel.policies[0], "", 0)).all_arms
        for arm in arms_of(design, panel):
            if strict and arm not in known:
                near = nearest(arm, [*known, *design.groups])
                raise SettingsError(f"{path.name}: panels.{name}: there is no arm or group {arm!r}{near}")
    return design


def arms_of(design: Design, panel: Panel) -> list[str]:
    """The panel's arms, groups written out, each once."""
    named = panel.arms or panel.rates
    return list(dict.fromkeys(arm for name in named for arm in design.groups.get(name, [name])))


def cells(design: Design, panels: Sequence[str] = ()) -> Iterator[Cell]:
    """Every run of the design, or of some panels, in its order."""
    for name, panel in design.panels.items():
        if panels and name not in panels:
            continue
        varied = [[(key, value) for value in values] for key, values in panel.vary.items()]
        for policy, values in product(panel.policies, product(*varied)):
            for arm in arms_of(design, panel):
                rates = [((RATE, rate),) for rate in panel.rates.get(arm, [])] or [()]
                for rate, seed in product(rates, panel.seeds):
                    yield Cell(name, policy, arm, seed, values + rate)


def of_language_model(design: Design, panel: str) -> bool:
    """Whether a panel's runs start from a language model, whose weights need not be at hand to know them by name."""
    entry = design.panels[panel]
    parts = [design.policies[policy] for policy in entry.policies]
    beds = [design.beds.get(part.get("bed", ""), {}) for part in parts]
    return any(part.get("policy", {}).get("source") for part in [*parts, *beds])


def shard_of(of: Sequence[Cell], index: int, count: int) -> list[Cell]:
    """Shard `index` of `count`, from 1. Seeds are dealt, so that all arms of one seed are on one machine."""
    seeds = list(dict.fromkeys((cell.policy, cell.seed) for cell in of))
    mine = set(seeds[index - 1 :: count])
    return [cell for cell in of if (cell.policy, cell.seed) in mine]


def settings_of(design: Design, cell: Cell) -> Settings:
    """The settings of a run: params.yaml, then those of its bed, the design's, the base policy's, the panel's and the
    cell's own."""
    raw = read_mapping(paths.PARAMS)
    scales = raw.get("scales")
    if not isinstance(scales, dict) or raw.get("scale") not in scales:
        settings_module.load()  # says what is wrong
    scale = scales[raw["scale"]]
    policy = dict(design.policies[cell.policy])
    bed = dict(design.beds.get(policy.pop("bed", ""), {}))
    arms = {"arms": bed.pop("arms", {})}
    raw |= bed  # its sections as they stand: a family that it does not name is not of it
    # A bed is of no scale, whose parts are those of params.yaml; the other scales are not checked again for every run.
    raw["scales"] = {raw["scale"]: {} if bed else scale}
    parts = [arms, design.settings, policy, design.panels[cell.panel].settings]
    varied = dict(cell.varied)
    mix = varied.pop("mix", None)
    for part in [*parts, *(_nested(key, value) for key, value in varied.items())]:
        raw = settings_module.merge(raw, _of_known_arms(part, raw))
    settings = settings_module.parse(raw)
    if stop_at := design.panels[cell.panel].stop_at:
        engine = {"stop_gflops": stop_at * settings.evaluation.bill_gflops}
        settings = settings.model_copy(update={"engine": settings.engine.model_copy(update=engine)})
    if design.panels[cell.panel].temperatures:
        settings = last_weights(settings)
    return settings if mix is None else settings.with_mix(mix)


def _of_known_arms(part: Changes, raw: dict[str, Any]) -> Changes:
    """`part` with what it changes of arms where params.yaml has each, in `arms` or `more_arms`; of others, nothing, but
    for arms of its own, which have a title and an about."""
    changed = part.get("arms", {})
    known = {name: arm for name, arm in changed.items() if name in raw["arms"]}
    others = {name: arm for name, arm in changed.items() if name not in known}
    more = {name: arm for name, arm in others.items() if name in raw["more_arms"] or {"title", "about"} <= set(arm)}
    own = {place: arms for place, arms in {"arms": known, "more_arms": more}.items() if arms}
    return {key: value for key, value in part.items() if key not in ("arms", "more_arms")} | own


def last_weights(settings: Settings) -> Settings:
    """The settings with which every run keeps the weights that it ends with; its numbers stay the same."""
    study = settings.drift.model_copy(update={"arms": list(settings.all_arms), "snapshot_every": settings.engine.steps})
    return settings.model_copy(update={"drift": study})


def _nested(key: str, value: Any) -> Changes:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value
