"""Settings in a few lines: what stands in params.yaml is not printed again."""

from html import escape
from typing import Any

from pydantic import ValidationError

from repro.paths import PARAMS
from repro.settings.errors import SettingsError, listed
from repro.settings.text import read_mapping

NAMED = {"scale", "seeds", "baseline", "primaries", "arms", "more_arms"}  # apart from the sections


def lines(settings: Any) -> list[str]:
    """Scale, seeds and arms; what is not as in params.yaml without a scale; the names of the sections."""
    arms = [f"{name} (baseline)" if name == settings.baseline else name for name in settings.arms]
    more = f", and {len(settings.more_arms)} of more_arms" if settings.more_arms else ""
    return [
        f"Settings at scale {settings.scale}, seeds {listed([str(seed) for seed in settings.seeds])}",
        f"arms: {listed(arms, 8)}{more}",
        f"differs from the default (in brackets): {listed(_changed(settings)) or 'nothing'}",
        f"sections: {', '.join(name for name in type(settings).model_fields if name not in NAMED)}",
    ]


def html(settings: Any) -> str:
    """`lines`, and the sections to unfold."""
    *above, _ = (f"<div>{escape(line)}</div>" for line in lines(settings))
    return "".join(above) + "".join(
        f"<details><summary>{name}</summary><pre>{escape(repr(section))}</pre></details>"
        for name, section in settings
        if name not in NAMED
    )


def _changed(settings: Any) -> list[str]:
    """`section.key here (by default)`; empty where params.yaml cannot be read."""
    from pandas import json_normalize

    try:
        raw = read_mapping(PARAMS)
        default = type(settings).model_validate({key: value for key, value in raw.items() if key != "scales"})
    except (SettingsError, ValidationError, AttributeError):
        return []
    then, now = (json_normalize(of.model_dump(exclude=NAMED)).loc[0].to_dict() for of in (default, settings))
    places = dict.fromkeys([*then, *now])
    return [f"{at} {now.get(at)!r} ({then.get(at)!r})" for at in places if then.get(at) != now.get(at)]
