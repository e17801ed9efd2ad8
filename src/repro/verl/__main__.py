"""Train one arm with verl's main loop on this machine's CPU (on GPUs: `python -m repro.paper_scale run`).

    python -m repro.verl --arm cost-aware --steps 3
    python -m repro.verl --arm d3s --seed 1 --ranks 2 --scale smoke trainer.save_freq=-1

Trailing `key=value` arguments are verl's own settings. The tables go to `<output>/<arm>`.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repro.arms import build
from repro.paths import BUILD, ROOT
from repro.settings import Settings, SettingsError, load
from repro.verl.run import SETTINGS, begun_alike, changed, check_arm
from repro.verl.version import NAME, UnsupportedVerl, require_plugin, require_verl

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

RAY_STARTS = 6  # Ray gives a node 30 s to start, which cannot be changed; a busy machine may need longer


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m repro.verl", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arm", required=True, help="an arm of params.yaml")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=_positive, help="overrides the settings")
    parser.add_argument("--scale", help="overrides the scale of params.yaml")
    parser.add_argument("--settings", type=Path, help="a dump of the settings, as stored by runs, replaces params.yaml")
    parser.add_argument("--ranks", type=_positive, default=1, help="data-parallel processes")
    parser.add_argument("--policy", type=Path, help="folder of the base policy; default: stage policy's, else shipped")
    parser.add_argument("--profiles", type=Path, help="folder of stage profile's profiles; default: measure if needed")
    parser.add_argument("--output", type=Path, default=BUILD / "verl")
    parser.add_argument("--resume", action="store_true", help="resume from the last checkpoint in the output")
    parser.add_argument("--end-with-parent", action="store_true", help="exit when the parent process is gone")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="verl's own settings")
    chosen = parser.parse_args(arguments)
    if chosen.end_with_parent:
        from repro.engine.workers import end_with

        end_with(os.getppid())
    settings = _settings(chosen)
    if chosen.steps:
        settings = with_steps(settings, chosen.arm, chosen.steps)
    options = {name: getattr(chosen, name) for name in ("ranks", "resume", "overrides", "profiles")}
    folder = train(chosen.arm, chosen.seed, settings, chosen.output.resolve(), chosen.policy, **options)
    print(f"tables of {chosen.arm}: {folder}")


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a positive integer")
    return int(text)


def _settings(chosen: argparse.Namespace) -> Settings:
    if chosen.settings:
        return Settings.model_validate_json(chosen.settings.read_text())
    settings = load(**({"scale": chosen.scale} if chosen.scale else {}))
    if settings.scale.startswith("paper-"):
        raise SettingsError(
            f"scale {settings.scale} is a paper's and trains on GPUs: `python -m repro.paper_scale run "
            f"{settings.scale} {chosen.arm}`; the small policy trains here with --scale cpu"
        )
    return settings


def with_steps(settings: Settings, arm: str, steps: int) -> Settings:
    """The settings with another number of steps."""
    own = settings.arm(arm)
    changes = own.engine.model_copy(update={"steps": steps})
    return settings.model_copy(update={"arms": {**settings.arms, arm: own.model_copy(update={"engine": changes})}})


def train(
    arm: str,
    seed: int,
    settings: Settings,
    output: Path,
    policy: Path | None = None,
    *,
    ranks: int = 1,
    resume: bool = False,
    profiles: Path | None = None,
    overrides: Sequence[str] = (),
) -> Path:
    """One run on this machine's CPU, in the folder `<output>/<arm>/seed-<seed>`. Returns `<output>/<arm>`, with the
    tables of all seeds trained so far with these settings. SettingsError, before anything is written, if verl does not
    support the arm or the folder holds a run that cannot be resumed."""
    require_verl()
    check_arm(arm, build(arm, settings.arm(arm)))
    if (rollouts := settings.engine_of(arm).rollouts_per_step) % ranks:
        raise SettingsError(f"--ranks {ranks} does not divide the {rollouts} rollouts of a step")
    folder = output / arm / f"seed-{seed}"
    if (folder / SETTINGS).exists() and not resume:
        raise SettingsError(f"{folder} holds a run: resume it with --resume, or remove the folder to start over")
    begun_alike(settings, arm, folder)
    os.environ.update(ENVIRONMENT)
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    from repro.training import policy_for
    from repro.verl.prepare import prepare
    from repro.verl.record import gather

    policy = policy or policy_for()
    run(prepare(arm, seed, settings, policy, folder, ranks=ranks, profiles=profiles, overrides=overrides))
    same = [path for path in (output / arm).glob("seed-*/tables") if not changed(settings, arm, path.parent)]
    gather(sorted(same), output / arm)
    return output / arm


def run(config: Any) -> None:
    """verl's main with our trainer. Ray is stopped afterwards if it was started here."""
    require_plugin()
    import ray
    from omegaconf import open_dict
    from verl.trainer.main_ppo import run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    with open_dict(config):
        config.trainer.v1.trainer_mode = NAME
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    started_here = not ray.is_initialized()
    for start in range(1, RAY_STARTS + 1):
        try:
            run_ppo(config, task_runner_class=task_runner())
            return
        except Exception as error:
            if "timed out during startup" not in str(error) or start == RAY_STARTS:
                raise
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


if __name__ == "__main__":
    try:
        main()
    except (UnsupportedVerl, SettingsError, OSError) as error:
        raise SystemExit(f"repro.verl: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit("repro.verl: interrupted; the same command with --resume continues") from None
