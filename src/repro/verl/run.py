"""Section `repro` of verl's configuration, and checks of the rest of it.

    repro:
      arm: cost-aware             # a name under `arms` of params.yaml
      seed: 0
      scale: paper-qwen3-4b       # null: the scale set in params.yaml
      settings: settings.json     # instead of params.yaml: a dump of the settings (`Settings.model_dump_json`)
      output: folder              # of the run's tables; null: `tables` beside verl's checkpoints
      profile: folder             # the plan's profile, written by `Profile.save`; null: none
      queries: queries.parquet    # all training queries, a row each, for an arm that profiles them again; null: none
      rollouts_per_step: 160      # null: data.train_batch_size × rollout.n
      minibatch: 40               # null: actor.ppo_mini_batch_size × rollout.n, as in verl

Only `arm` is required.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.arms import build
from repro.engine.profile import Profile
from repro.files import read_parquet
from repro.methods.method import Method
from repro.settings import SCHEDULING, WORDS, Settings, SettingsError, load, stored
from repro.verl.loss import actor_settings

PROFILE = "profile"  # name of the profile's files in its folder
SETTINGS = "settings.json"  # in a run's folder: the settings it was started with


@dataclass(frozen=True)
class RunOnVerl:
    """One training run: its arm's functions and its sizes."""

    arm: str
    seed: int
    settings: Settings
    method: Method
    rollouts_per_step: int
    updates: int  # optimiser steps per batch, unless a sampler sets them
    output: Path
    profile: Profile | None
    queries: Path | None

    @classmethod
    def of(cls, config: Any) -> "RunOnVerl":
        """From verl's configuration; SettingsError if section `repro` is missing or verl does not support the arm."""
        section = config.get("repro", None)
        if not section or not section.get("arm"):
            raise SettingsError("verl's configuration has no `repro.arm`: name an arm of params.yaml")
        settings = settings_of(section)
        arm = settings.arm(section.arm)
        method = build(section.arm, arm)
        check_arm(section.arm, method)
        if settings.evaluation.price or settings.engine_of(section.arm).stop_gflops:
            raise SettingsError(
                "a run on verl ends with its last step, whatever it has paid: leave out evaluation.price and "
                "engine.stop_gflops"
            )
        rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
        per_step = section.get("rollouts_per_step") or config.data.train_batch_size * rollout.n
        minibatch = section.get("minibatch") or actor.ppo_mini_batch_size * rollout.n
        if per_step % minibatch:
            raise SettingsError(f"{per_step} rollouts a step are not a multiple of the mini-batch of {minibatch}")
        output = Path(section.get("output") or Path(config.trainer.default_local_dir) / "tables")
        profile = None
        if arm.profile and section.get("profile"):
            profile = Profile.load(Path(section.profile), PROFILE).first(arm.profile.samples)
        queries = Path(section.queries) if section.get("queries") else None
        if method.profile_again and not (profile and queries):
            raise SettingsError(f"arms.{section.arm}: to profile again, verl needs `repro.profile` and `repro.queries`")
        seed = int(section.get("seed") or 0)
        return cls(section.arm, seed, settings, method, per_step, per_step // minibatch, output, profile, queries)


def settings_of(section: Any) -> Settings:
    """The settings that section `repro` names."""
    if dumped := section.get("settings"):
        return stored(Path(dumped))
    return load(**({"scale": section.scale} if section.get("scale") else {}))


def check_arm(name: str, method: Method) -> None:
    """SettingsError if verl's trainer does not support an arm."""
    if method.only_embedded:
        raise SettingsError(
            f"arms.{name}: {method.only_embedded}, which verl does not do here: train it with repro.training.train"
        )
    filter = method.filter
    if filter is not None and getattr(filter, "func", filter).__name__ != "zero_variance":
        raise SettingsError(f"arms.{name}: verl filters groups by zero variance alone (algorithm.filter_groups)")
    if filter is not None and getattr(method.reward, "func", method.reward).__name__ != "verified":
        raise SettingsError(f"arms.{name}: verl's filter sees the verifier's reward, so only `verified` goes with it")


def begun_alike(now: Settings, arm: str, folder: Path) -> None:
    """SettingsError if `folder` holds a run with other settings, which must not be resumed with these."""
    if differences := changed(now, arm, folder):
        raise SettingsError(
            f"{folder} was begun with other settings ({'; '.join(differences)}): restore them, or remove the folder"
        )


def changed(now: Settings, arm: str, folder: Path) -> list[str]:
    """The settings that changed since the run in `folder` was started, as "engine.steps: 3 → 60"; [] for a new one."""
    path = folder / SETTINGS
    if not path.exists():
        return []
    try:
        then = stored(path)
    except ValueError:
        return ["they are of another version of this project"]
    before, after = _relevant(then, arm), _relevant(now, arm)
    return [f"{key}: {before.get(key)} → {value}" for key, value in after.items() if before.get(key) != value]


def _relevant(settings: Settings, arm: str) -> dict[str, Any]:
    sections = {"engine": settings.engine_of(arm), "evaluation": settings.evaluation, f"arms.{arm}": settings.arm(arm)}
    entries = {f"{name}.{key}": value for name, entry in sections.items() for key, value in entry.model_dump().items()}
    return {key: value for key, value in entries.items() if key.rpartition(".")[2] not in WORDS | SCHEDULING}


def finished(folder: Path, steps: int) -> bool:
    """Whether a run has been evaluated after its last step, or has diverged."""
    path = folder / "tables" / "evaluations.parquet"
    if not path.exists():
        return False
    evaluations = read_parquet(path, "the training", ["step", "diverged"])
    return bool(evaluations["diverged"].any() or evaluations["step"].max() >= steps)


def check_config(config: Any, method: Method) -> None:
    """SettingsError if verl's configuration would silently differ from the arm."""
    from omegaconf import OmegaConf

    actor, algorithm, v1 = config.actor_rollout_ref.actor, config.algorithm, config.trainer.v1
    demands = {
        "algorithm.adv_estimator=grpo": algorithm.adv_estimator == "grpo",
        "algorithm.use_kl_in_reward=false": not algorithm.use_kl_in_reward,
        f"algorithm.filter_groups.enable={str(method.filter is not None).lower()}": (
            bool(algorithm.filter_groups.enable) == (method.filter is not None)
        ),
        "actor_rollout_ref.actor.use_dynamic_bsz=true": actor.use_dynamic_bsz,  # mini-batches vary in size
        "actor_rollout_ref.actor.ppo_epochs=1": actor.ppo_epochs == 1,
        "trainer.critic_warmup=0": config.trainer.critic_warmup == 0,
        "trainer.v1.sampler.custom_sampler.path=null": not v1.sampler.custom_sampler.path,  # steps follow the plan
        "algorithm.rollout_correction.bypass_mode=false": (  # it has no entropy for samplers
            not (algorithm.rollout_correction.bypass_mode and method.samplers)
        ),
    }
    if method.profile_again:  # profiles are sampled like evaluations
        rollout = config.actor_rollout_ref.rollout
        for key in ("temperature", "top_p", "top_k"):
            demands[f"actor_rollout_ref.rollout.val_kwargs.{key}={rollout[key]}"] = (
                rollout.val_kwargs[key] == rollout[key]
            )
    for key, value in actor_settings(method, config.data.max_response_length).items():
        if key != "clip_ratio_c":  # the dual clip, which the papers' runs had
            demands[f"actor_rollout_ref.actor.{key}={value}"] = OmegaConf.select(actor, key) == value
    if failed := [demand for demand, met in demands.items() if not met]:
        raise SettingsError(f"the trainer `repro` needs {', '.join(failed)} in verl's configuration")
