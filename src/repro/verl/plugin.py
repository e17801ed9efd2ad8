"""Loaded by `import verl` in every process (entry point of the group verl.plugins).

It registers what a process may need before it knows its task: the CPU as a platform where VERL_PLATFORM asks for it,
and the rollout replica `hf`. The trainer is registered where it runs (repro.verl.__main__), because it imports most of
verl, which is not ready yet here.
"""

import os
import warnings

from repro.verl.version import UnsupportedVerl, require_verl


def register() -> None:
    """A warning, and nothing else, on a verl that we do not know: other people's runs go on."""
    try:
        require_verl()
    except UnsupportedVerl as error:
        warnings.warn(f"repro's plugin stays out: {error}", stacklevel=2)
        return
    if os.environ.get("VERL_PLATFORM", "").lower() == "cpu":
        from repro.verl.platform_cpu import register_platform

        register_platform()
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    RolloutReplicaRegistry.register("hf", _hf_replica)
    base._ROLLOUT_REGISTRY["hf", "async"] = "repro.verl.hf_rollout.HFAdapter"  # verl has no public way for this half


def _hf_replica():
    from repro.verl.hf_rollout import HFReplica

    return HFReplica


register()
