"""The settings: `params.yaml` checked by one typed schema.

`load()` merges the chosen scale into the defaults. An unknown key, a wrong type, an impossible value or a misspelt arm
is a SettingsError of one sentence with the key and, if there is one, the nearest valid name.
"""

from repro.settings.arm import WORDS, Arm
from repro.settings.errors import SettingsError, nearest
from repro.settings.reading import check_parameters, load, merge, parse, stored, validated
from repro.settings.schema import (
    ON_VERL,
    SCHEDULING,
    Engine,
    Evaluation,
    Family,
    Policy,
    Settings,
    Statistics,
    Task,
    weight_at,
)
from repro.settings.studies import Fidelity, Mix
