"""All paper scales by name."""

from repro.paper_scale import cost_aware_learning, d3s
from repro.paper_scale.values import PaperScale
from repro.settings.errors import SettingsError, nearest

SCALES: dict[str, PaperScale] = {scale.name: scale for scale in (*cost_aware_learning.ALL, *d3s.ALL)}


def find(name: str) -> PaperScale:
    """The scale of that name; SettingsError with the nearest name if there is none."""
    if name not in SCALES:
        raise SettingsError(f"there is no paper scale {name!r}{nearest(name, SCALES)}")
    return SCALES[name]
