"""Hydra composes verl's defaults, our base config and the overrides; verl checks the result."""

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from repro.errors import brief
from repro.paths import CONFIGS
from repro.settings.errors import SettingsError, nearest
from repro.verl.composed import flat
from repro.verl.run import ACTOR, ROLLOUT

if TYPE_CHECKING:
    from omegaconf import DictConfig

FOLDER = CONFIGS / "verl"
BASE = "repro_trainer"
WHOLE = {  # the least of each; -1: never
    **{f"data.{name}": 1 for name in ("train_batch_size", "max_prompt_length", "max_response_length")},
    **{f"trainer.{name}": 1 for name in ("nnodes", "n_gpus_per_node", "total_epochs")},
    **{f"trainer.{name}": -1 for name in ("save_freq", "test_freq")},
    **{f"{ROLLOUT}.n": 1, f"{ROLLOUT}.val_kwargs.n": 1, f"{ACTOR}.ppo_mini_batch_size": 1},
}
KEY = re.compile(r"[A-Za-z_]\w*(\.[\w-]+)*")
POSITIVE = {  # and the most of each
    **{f"{ROLLOUT}.temperature": math.inf, f"{ACTOR}.optim.lr": math.inf},
    **{f"{ROLLOUT}.top_p": 1.0, f"{ROLLOUT}.val_kwargs.top_p": 1.0},
}
OURS = {  # keys that the command line and the run's folder decide
    **{f"repro.{name}": f"--{name} names it" for name in ("arm", "seed", "output")},
    **{f"repro.{name}": "it is the run's own file" for name in ("settings", "profile")},
    **{f"repro.{name}": "it is the hash of what the run reads" for name in ("data", "model", "profiled")},
    "hydra": "Hydra's own settings do not reach a run",
}


def key_of(entry: str) -> str:
    """The key of an override, KEY=VALUE, without Hydra's sign for one that is new or goes."""
    return entry.partition("=")[0].lstrip("+~")


def value_of(entry: str) -> Any:
    """The value of an override, as Hydra reads it (` 4` and `int('4')` are 4); None where it reads none."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(entry).value()
    except HydraException:
        return None


def refuse(overrides: Sequence[str], instead: Mapping[str, str]) -> None:
    """SettingsError on an override of a key of `instead`, which has no effect or the wrong one, with what to do."""
    for entry in overrides:
        for key, what in {**OURS, **instead}.items():
            if f"{key_of(entry)}.".startswith(f"{key}."):  # an entry of a list there is a key below it
                raise SettingsError(f"{entry}: {what}")


def require_one_value(entry: str, defaults: Any) -> None:
    """SettingsError where an override sets more than the value of a key: a section's, by a mapping, by null or by a
    file of verl's (Hydra's `GROUP@PACKAGE`). What reads overrides by their keys, `refuse` for one, would not see which.
    A section that is empty in `defaults` holds a library's options: it takes a mapping."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    key = key_of(entry)
    if not KEY.fullmatch(key):
        raise SettingsError(f"{entry}: {key!r} is no key of verl's: write SECTION.KEY=VALUE, with dots alone")
    try:
        section = OmegaConf.select(defaults, key)
    except OmegaConfBaseException:  # below a value: no section, and for others to refuse
        return
    if OmegaConf.is_dict(section) and len(section):
        raise SettingsError(
            f"{entry}: {key} is a section of verl's configuration: set its keys one by one, as {key}.KEY=VALUE"
        )


def compose(overrides: Sequence[str]) -> "DictConfig":
    """verl's config with `overrides` (repro.verl.layers, any of Hydra's) on top.

    SettingsError where verl is missing or has no such key, or where a value is of another kind than verl's own.
    """
    try:
        import verl  # noqa: F401
        from hydra import compose as put_together
        from hydra import initialize_config_dir
        from hydra.errors import HydraException
    except ImportError as error:
        raise SettingsError(f"this runs on verl, which is not installed ({error}): `make extra-verl`") from error
    defaults = verls_own()
    last = {key_of(entry): entry for entry in overrides}.values()  # of one key, the last counts
    for entry in last:
        require_one_value(entry, defaults)
    with initialize_config_dir(str(FOLDER), version_base=None):
        try:
            config = put_together(BASE, overrides=list(overrides))
        except HydraException as error:
            raise SettingsError(_refusal(error, overrides, defaults)) from error
    for entry in last:
        same_kind(entry, defaults, config)
    if overrides:
        check_numbers(config)
    return config


@cache
def verls_own() -> "DictConfig":
    """verl's own values under our base configuration, for comparison alone."""
    from hydra import compose as put_together
    from hydra import initialize_config_dir

    with initialize_config_dir(str(FOLDER), version_base=None):
        return put_together(BASE)


def check_numbers(config: Any) -> None:
    """SettingsError where a number without which no step can be made is none, or is out of bounds: verl would end in
    an error of a process of Ray, or not at all."""
    from omegaconf import OmegaConf

    steps = "trainer.total_training_steps"  # null: as many as the data last for
    given = {} if OmegaConf.select(config, steps) is None else {steps: 1}
    for key, least in {**WHOLE, **given}.items():
        value = OmegaConf.select(config, key)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise SettingsError(f"{key}={brief(value)}: it should be a whole number from {least} on")
    for key, most in POSITIVE.items():
        value = OmegaConf.select(config, key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most or value == math.inf:
            bound = "" if most == math.inf else f", and at most {most:g}"
            raise SettingsError(f"{key}={brief(value)}: it should be a number above 0{bound}")


def _refusal(error: Exception, overrides: Sequence[str], defaults: "DictConfig") -> str:
    """Which override Hydra does not take, and the nearest key that verl has."""
    message = " ".join(str(error).split())
    unknown = re.match(r"Could not override '([^']+)'", message)
    if not unknown:
        return f"{given}: {message}" if (given := getattr(error, "override", None)) else message
    key = unknown[1]
    given = next((entry for entry in overrides if entry.startswith(f"{key}=")), key)
    return f"{given}: verl's configuration has no {key}{nearest(key, flat(defaults))}; +KEY=VALUE would add one"


def same_kind(entry: str, defaults: "DictConfig", config: "DictConfig") -> None:
    """SettingsError where an override has another type than verl's value, a word for a number say: Hydra accepts it,
    and a run fails on it hours later. Checked where verl's value is a section, a truth value or a number; null passes.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    key = entry.partition("=")[0].lstrip("+")
    if not re.fullmatch(r"[\w.]+", key):
        return
    try:
        before, now = (OmegaConf.select(whole, key) for whole in (defaults, config))
    except OmegaConfBaseException as error:
        raise SettingsError(f"{entry}: {' '.join(str(error).split())}") from error
    kinds = {
        "a section": OmegaConf.is_dict,
        "true or false": lambda value: isinstance(value, bool),
        "a number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    }
    for kind, is_kind in kinds.items():
        if is_kind(before) and now is not None and not is_kind(now):
            raise SettingsError(f"{entry}: verl's own value is {_shown(before)}, and this is not {kind}")


def template_of(config: Any) -> dict[str, Any]:
    """The options of the chat template, with which verl writes every prompt."""
    from omegaconf import OmegaConf

    return OmegaConf.to_container(config.data.get("apply_chat_template_kwargs") or OmegaConf.create({}), resolve=True)


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, (bool, int, float)) else "a section"


def check(config: Any) -> None:
    """The checks that verl's main makes of a config before it starts Ray; SettingsError in one sentence."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    try:
        OmegaConf.to_container(config, resolve=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Disabled critic")  # as every arm has it
            validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
        omega_conf_to_dataclass(config.actor_rollout_ref.rollout)  # a worker would fail on this one after minutes
        omega_conf_to_dataclass(config.algorithm)
    except Exception as error:
        message = " ".join(str(error).split())
        what = config.repro.scale or config.actor_rollout_ref.model.path
        raise SettingsError(f"verl refuses {what} with arm {config.repro.arm}: {message}") from error
