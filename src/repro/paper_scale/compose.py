"""Hydra puts verl's defaults, our base config and the overrides together; verl checks what comes out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from repro.paths import ROOT
from repro.settings.errors import SettingsError

if TYPE_CHECKING:
    from omegaconf import DictConfig

CONFIGS = ROOT / "configs" / "verl"
BASE = "repro_trainer"


def compose(overrides: Sequence[str]) -> "DictConfig":
    """verl's config with `overrides` (repro.paper_scale.overrides, or any of Hydra's) on top.

    SettingsError where verl is missing, or has no such key.
    """
    try:
        import verl  # noqa: F401
        from hydra import compose as put_together
        from hydra import initialize_config_dir
        from hydra.errors import HydraException
    except ImportError as error:
        raise SettingsError(
            f"paper scales run on verl, which is not here ({error}); install it: `make extra-verl`"
        ) from error
    try:
        with initialize_config_dir(str(CONFIGS), version_base=None):
            return put_together(BASE, overrides=list(overrides))
    except HydraException as error:
        cause = error.__cause__ or error
        raise SettingsError(f"configs/verl/{BASE}.yaml: {' '.join(str(cause).split())}") from error


def check(config: Any) -> None:
    """verl's own checks of a composed config, what its main does before it starts Ray; SettingsError in a sentence."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    try:
        OmegaConf.to_container(config, resolve=True)
        validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
        omega_conf_to_dataclass(config.actor_rollout_ref.rollout)  # workers do this one, and would fail after minutes
        omega_conf_to_dataclass(config.algorithm)
    except Exception as error:
        told = " ".join(str(error).split())
        raise SettingsError(f"verl refuses {config.repro.scale} with arm {config.repro.arm}: {told}") from error
