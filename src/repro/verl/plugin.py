"""Loaded by `import verl` in every process (entry point of the group verl.plugins).

In other people's runs it does nothing. In ours it registers what any process may need: the CPU as a platform if
VERL_PLATFORM requests it, and the rollout replica `hf`; and it hides a TRL that is too new for verl. The trainer is
registered where it runs (repro.verl.start), because it imports most of verl, which is not fully loaded here.
"""

import os
import sys
import warnings
from functools import cache

from repro.verl.version import UnsupportedVerl, require_verl


def ours() -> bool:
    """Whether this process has loaded more of our code than the plugin, or was started by one that has, which sets
    REPRO_ROOT (repro.verl.start, repro.verl.ready)."""
    return "repro.paths" in sys.modules or bool(os.environ.get("REPRO_ROOT"))


def register() -> None:
    """On an unsupported verl, only warn."""
    if not ours():
        return
    try:
        require_verl()
    except UnsupportedVerl as error:
        warnings.warn(f"repro's plugin is disabled: {error}", stacklevel=2)
        return
    if os.environ.get("VERL_PLATFORM", "").lower() == "cpu":
        from repro.verl.platform_cpu import register_platform

        register_platform()
    _trl_without_value_head()
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    RolloutReplicaRegistry.register("hf", _hf_replica)
    base._ROLLOUT_REGISTRY["hf", "async"] = "repro.verl.hf_rollout.HFAdapter"  # verl has no public API for this part


def _trl_without_value_head() -> None:
    """verl patches TRL's model with a value head if TRL is installed, and fails on a TRL that no longer has it, such as
    that of our extra. Only critics need it."""
    from verl.utils import import_utils

    installed = import_utils.is_trl_available

    @cache
    def is_trl_available() -> bool:
        if not installed():
            return False
        try:
            from trl.experimental.ppo import AutoModelForCausalLMWithValueHead
        except ImportError:
            try:
                from trl import AutoModelForCausalLMWithValueHead  # noqa: F401
            except ImportError:
                return False
        return True

    import_utils.is_trl_available = is_trl_available


def _hf_replica():
    from repro.verl.hf_rollout import HFReplica

    return HFReplica


register()
