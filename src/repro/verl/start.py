"""verl's main with our trainer, and the environment in which it runs on a CPU."""

import os
from typing import Any

from repro.errors import Refused
from repro.paths import ROOT
from repro.verl.ready import loggers_of
from repro.verl.version import require_plugin

# Set before verl is imported, for this process and, through Ray, for all others.
ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",
    "OMP_NUM_THREADS": "1",  # with two, updates were up to ten times slower: the processes share the cores
    "TORCHDYNAMO_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_worker_prestart": "0",  # else one process for each of our nominal CPUs
    "REPRO_ROOT": str(ROOT),
}

RAY_STARTS = 6  # Ray gives the parts of a node 15 s to start, which cannot be changed; a busy machine may need longer


class NoRoom(Refused, MemoryError):
    """One sentence: Ray has ended a process because memory ran out, and the remedy."""


class Lost(Refused, RuntimeError):
    """One sentence: a process of Ray's has ended, or none could be started, and the remedy."""


def use_cpu() -> None:
    """Let verl, and all processes that it starts, run on this machine's CPU. Call it before verl is imported."""
    os.environ.update(ENVIRONMENT)
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)


def run(config: Any) -> None:
    """verl's main with our trainer. Ray is stopped afterwards if it was started here."""
    require_plugin()
    import ray
    from verl.trainer.main_ppo import run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    loggers_of(config)
    started_here = not ray.is_initialized()
    for start in range(1, RAY_STARTS + 1):
        try:
            run_ppo(config, task_runner_class=task_runner())
            return
        except ray.exceptions.OutOfMemoryError as error:  # raised as one of its kind whatever process ran out
            raise NoRoom(
                "the machine's memory is full, so Ray ended a process of the training: end what else uses memory, or "
                "lower the sizes asked for, then run the same command again, which goes on from the last checkpoint"
            ) from error
        except (ray.exceptions.RayActorError, ray.exceptions.WorkerCrashedError) as error:
            raise Lost(
                "a process of the training was killed, or its node has gone: run the same command again, which goes on "
                "from the last checkpoint"
            ) from error
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
            if start == RAY_STARTS:
                raise Lost(
                    f"Ray did not start in {RAY_STARTS} tries, since its parts had too little of this machine's time: "
                    "end what else runs here, then run the same command again (Ray's own words are in /tmp/ray)"
                ) from error
            print(f"Ray was too slow to start, trying again ({start})", flush=True)
        finally:
            if started_here:
                ray.shutdown()


def task_runner() -> Any:
    """verl's task runner with the trainer `repro`, which must be registered in the process that runs it."""
    import ray
    from verl.trainer import main_ppo

    base = main_ppo.TaskRunnerV1.__ray_metadata__.modified_class

    class Runner(base):
        def run(self, config: Any) -> None:
            import repro.verl.trainer  # noqa: F401

            super().run(config)

    return ray.remote(num_cpus=1)(Runner)
