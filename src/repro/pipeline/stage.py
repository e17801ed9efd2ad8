"""The stages, read from dvc.yaml: what DVC runs and, under `meta`, what their results depend on apart from data."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from repro import paths
from repro.closure import heading
from repro.errors import brief
from repro.files import Unreadable
from repro.settings import SCHEDULING, WORDS, Settings, SettingsError, nearest


@dataclass(frozen=True)
class Stage:
    """One stage of dvc.yaml; `item` is the part after the @, if any. `deps`, `outs`: paths relative to the root.
    `meta`: as in dvc.yaml, which explains it."""

    kind: str
    item: str | None
    deps: tuple[str, ...]
    outs: tuple[str, ...]
    meta: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.kind if self.item is None else f"{self.kind}-{self.item}"

    @property
    def address(self) -> str:
        """Its name for DVC."""
        return self.kind if self.item is None else f"{self.kind}@{self.item}"

    @property
    def notebook(self) -> Path:
        return paths.NOTEBOOKS / self.meta["notebook"]

    @property
    def report(self) -> Path | None:
        """The HTML report it makes, if any."""
        return next((paths.ROOT / out for out in self.outs if out.endswith(".html")), None)

    @property
    def title(self) -> str:
        """The report's title: the notebook's first heading, unless dvc.yaml sets one."""
        return self.meta.get("title") or heading(self.notebook)

    @property
    def output(self) -> str | None:
        """The notebook's parameter `output`: the stage's first output other than a report."""
        made = [out for out in self.outs if not out.endswith(".html")]
        return str(paths.ROOT / made[0]) if made else None

    @property
    def data(self) -> list[Path]:
        """The data shown in the report: the results and timings that the stage reads and writes."""
        named = [entry for entry in (*self.deps, *self.outs) if entry.startswith(("results/", "timings/"))]
        return [paths.ROOT / entry for entry in named]

    def parameters(self, settings: Settings) -> dict[str, Any]:
        """The notebook's parameters."""
        if self.kind == "theory":
            return {**settings.theory.model_dump()[self.item], "output": self.output}
        named = {"arm": self.item} if self.item else {}
        made = {"output": self.output} if self.output else {}
        return {**named, "scale": settings.scale, **made}

    def settings(self, settings: Settings) -> dict[str, Any]:
        """{name: value} of the settings that the results depend on."""
        return {name: _read(name, settings, self.item) for name in self.meta["reads"]}

    def methods(self, settings: Settings) -> list[str]:
        """The modules of the methods that the stage runs."""
        whose = self.meta.get("methods")
        if whose is None:
            return []
        arms = {"item": [self.item], "all": settings.all_arms}.get(whose) or getattr(settings, whose).arms
        calls = [call for arm in arms for call in settings.arm(arm).calls]
        return list(dict.fromkeys(f"repro.methods.{package}.{name}" for package, name, _ in calls))


def all_stages(settings: Settings) -> list[Stage]:
    """Every stage in the order of dvc.yaml."""
    stages = []
    for kind, entry in _declared().items():
        items = _items(entry["foreach"], settings) if "foreach" in entry else [None]
        stages += [_make(kind, item, settings) for item in items]
    return stages


def stage(kind: str, settings: Settings, item: str | None = None) -> Stage:
    """One stage by its name in dvc.yaml; SettingsError if there is none."""
    declared = _declared()
    if kind not in declared:
        raise SettingsError(f"there is no stage {brief(kind)}{nearest(kind, declared)}")
    each = declared[kind].get("foreach")
    if (item is not None) != (each is not None):
        need = f"needs an item, as in {kind}@{_items(each, settings)[0]}" if each else "takes no item"
        raise SettingsError(f"stage {kind} {need}")
    if each and item not in _items(each, settings):
        what = {"report": "arm", "theory": "theory group"}.get(kind, kind)
        raise SettingsError(f"there is no {what} {brief(item)} in params.yaml{nearest(item, _items(each, settings))}")
    return _make(kind, item, settings)


@cache
def _declared() -> dict[str, dict[str, Any]]:
    """The stages of dvc.yaml that run a notebook, as written there."""
    path = paths.ROOT / "dvc.yaml"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))["stages"]
        found = {kind: entry for kind, entry in content.items() if "meta" in entry.get("do", entry)}
        for kind, entry in found.items():
            if not {"cmd", "deps", "outs"} <= set(entry.get("do", entry)):
                raise ValueError(f"{kind} is not whole")
        return found
    except (OSError, yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise Unreadable(f"{path} declares no stages ({why}): restore it, as with `git checkout dvc.yaml`") from error


def _items(foreach: Any, settings: Settings) -> list[str]:
    """The keys that DVC finds at `${a.b}`."""
    value: Any = settings
    try:
        for part in foreach.strip("${}").split("."):
            value = getattr(value, part)
        return list(value if isinstance(value, Mapping) else type(value).model_fields)
    except AttributeError as error:
        raise _names_nothing(foreach) from error


def _names_nothing(template: Any) -> Unreadable:
    """The words for a template of dvc.yaml that has no value."""
    why = f"{brief(template)} names nothing in params.yaml"
    return Unreadable(f"{paths.ROOT / 'dvc.yaml'}: {why}: correct it, or restore it by `git checkout dvc.yaml`")


def _make(kind: str, item: str | None, settings: Settings) -> Stage:
    entry = _declared()[kind]
    entry = _fill(entry.get("do", entry), _values(kind, item, settings))
    meta = entry["meta"]
    outs = [next(iter(out)) if isinstance(out, dict) else out for out in entry["outs"]]
    return Stage(kind, item, tuple(entry["deps"]), tuple(outs), meta)


def _values(kind: str, item: str | None, settings: Settings) -> dict[str, str]:
    """The values of DVC's template variables in a stage."""
    values = {"baseline": settings.baseline}
    if item is not None:
        values["key"] = item
    if kind == "report":
        values["item.title"] = settings.arm(item).title
    return values


def _fill(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _fill(inner, values) for key, inner in value.items()}
    if isinstance(value, list):
        return [_fill(inner, values) for inner in value]
    if not isinstance(value, str):
        return value
    try:
        return re.sub(r"\$\{([\w.]+)\}", lambda match: values[match[1]], value)
    except KeyError as error:
        raise _names_nothing(value) from error


def _read(name: str, settings: Settings, item: str | None) -> Any:
    """The value of one entry of `reads`: a view, a section of params.yaml, or a key in one."""
    if name in VIEWS:
        return VIEWS[name](settings, item)
    section, _, rest = name.partition(".")
    if section == "arms":  # those of a study: the fields that affect training
        arms = getattr(settings, rest).arms if hasattr(settings, rest) else [rest]
        return {arm: settings.arm(arm).model_dump(exclude=WORDS) for arm in arms if arm in settings.all_arms}
    if section == "titles":
        return _titles(settings, getattr(settings, rest).arms)
    value = getattr(settings, section)
    for part in rest.split(".") if rest else ():
        value = getattr(value, part)
    hidden = {"engine": SCHEDULING, "task": {"pretraining_queries"}}.get(name)
    if isinstance(value, dict):
        return {key: getattr(entry, "model_dump", lambda entry=entry: entry)() for key, entry in value.items()}
    return value.model_dump(exclude=hidden) if hasattr(value, "model_dump") else value


def _titles(settings: Settings, arms: Any) -> dict[str, Any]:
    """The titles and groups of arms, in the order of the tables."""
    return {name: settings.arm(name).model_dump(include={*WORDS, "seeds"}) for name in arms}


def _profiled(settings: Settings, item: str | None) -> dict[str, Any]:
    wanted = [name for name, arm in settings.all_arms.items() if name in settings.drift.arms or arm.profile]
    return {name: settings.arm(name).model_dump() for name in wanted}


VIEWS: dict[str, Callable[[Settings, str | None], Any]] = {
    "seeds": lambda s, item: s.seeds_of(item) if item in s.all_arms else s.seeds,
    "arm.whole": lambda s, item: s.arm(item).model_dump(),
    "baseline.title": lambda s, item: s.arm(s.baseline).title,
    "titles": lambda s, item: _titles(s, s.all_arms),
    "methods": lambda s, item: {name: arm.model_dump() for name, arm in s.all_arms.items()},
    "methods.profiled": _profiled,
    "theory": lambda s, item: s.theory.model_dump()[item],
    "theory.groups": lambda s, item: list(type(s.theory).model_fields),
}
