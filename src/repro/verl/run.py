"""Section `repro` of verl's configuration, and checks of the rest of it.

    repro:
      arm: cost-aware             # a name under `arms` of params.yaml
      seed: 0
      scale: paper-qwen3-4b       # null: the scale set in params.yaml
      settings: settings.json     # instead of params.yaml: a dump of the settings (`Settings.model_dump_json`)
      output: folder              # of the run's tables; null: `tables` next to verl's checkpoints
      profile: folder             # the plan's profile, written by `Profile.save`; null: none
      rollouts_per_step: 160      # null: data.train_batch_size × rollout.n
      minibatch: 40               # null: actor.ppo_mini_batch_size × rollout.n, as in verl

Only `arm` is required.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.arms import build
from repro.files import read_parquet
from repro.methods.guard import is_whole, name_of
from repro.methods.method import Method
from repro.protocol.profile import Profile
from repro.settings import SCHEDULING, WORDS, Settings, SettingsError, load, stored
from repro.verl.loss import actor_settings
from repro.verl.version import AHEAD, NAME

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
PROFILE = "profile"  # name of the profile's files in its folder
MODE, WEIGHTED = "trainer.v1.trainer_mode", "algorithm.rollout_correction.rollout_is"
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

    @classmethod
    def of(cls, config: Any) -> "RunOnVerl":
        """From verl's configuration; SettingsError if section `repro` is missing or verl does not support the arm."""
        section = config.get("repro", None)
        if not section or not section.get("arm"):
            raise SettingsError("verl's configuration has no `repro.arm`: name an arm of params.yaml")
        settings = settings_of(section)
        arm = settings.arm(section.arm)
        method = build(section.arm, arm)
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
        if method.profile_again and not profile:
            raise SettingsError(f"arms.{section.arm}: to profile again, verl needs `repro.profile`")
        seed = int(section.get("seed") or 0)
        return cls(section.arm, seed, settings, method, per_step, per_step // minibatch, output, profile)


def settings_of(section: Any) -> Settings:
    """The settings that section `repro` names."""
    if dumped := section.get("settings"):
        return stored(Path(dumped))
    return load(**({"scale": section.scale} if section.get("scale") else {}))


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


# Keys of verl's that have no effect here, or that end a run once its workers are up: the value that goes, and why.
FIXED = {
    "trainer.use_v1": (True, "the trainer `repro` is one of verl's v1 trainers"),
    "trainer.v1.sampler.custom_sampler.path": (None, "steps follow the arm's plan"),
    "trainer.v1.sampler.sync_refill_failed_groups": (False, "a step goes on without rollouts that failed"),
    "trainer.critic_warmup": (0, "there is no critic"),
    "trainer.balance_batch": (True, "every mini-batch is balanced over the ranks"),
    "data.shuffle": (False, "the arm's plan orders the questions"),
    "data.sampler.class_path": (None, "the arm's plan orders the questions"),
    "data.gen_batch_size": (1, "a step has as many groups as the arm's plan fits into it"),
    "data.train_max_samples": (-1, "the arm's plan chooses among all questions"),
    "data.filter_overlong_prompts": (False, "prompts that are too long are left out beforehand"),
    "algorithm.adv_estimator": ("grpo", "the arm has its own advantage"),
    "algorithm.use_kl_in_reward": (False, "the arm has its own reward; a KL term is the actor's, use_kl_loss"),
    "algorithm.filter_groups.enable": (False, "the arm's filter drops groups: give it `filter: zero_variance`"),
    "algorithm.filter_groups.metric": ("reward", "the arm's filter sees its reward"),
    "reward.reward_manager.name": ("Verdict", "name a reward function, reward.custom_reward_function.path"),
    "reward.reward_manager.source": ("importlib", "name a reward function, reward.custom_reward_function.path"),
    "reward.reward_model.enable": (False, "a function judges: reward.custom_reward_function.path"),
    "reward_model.enable": (None, "a function judges: reward.custom_reward_function.path"),
    "reward_model.reward_manager": (None, "name a reward function, reward.custom_reward_function.path"),
    "custom_reward_function.path": (None, "its name is reward.custom_reward_function.path"),
    "distillation.enabled": (False, "there is no teacher"),
    f"{ACTOR}.shuffle": (False, "mini-batches are drawn by the run's seed"),
    f"{ACTOR}.use_dynamic_bsz": (True, "mini-batches vary in size"),
    f"{ACTOR}.ppo_epochs": (1, "a batch trains once"),
    "actor_rollout_ref.hybrid_engine": (True, "the trainer's GPUs sample too"),
    f"{ROLLOUT}.multi_turn.enable": (False, "a response is one turn"),
}
ONE_OF = {  # the same, where there is a choice
    MODE: ((NAME, AHEAD), "the arm's choice needs one of our trainers"),
    f"{ACTOR}.strategy": (("fsdp", "fsdp2"), "workers are FSDP's"),
    f"{ROLLOUT}.name": (("vllm", "hf"), "GPUs sample with vLLM, a CPU with hf"),
}


def check_config(config: Any, method: Method) -> None:
    """SettingsError, a sentence on the first key, if verl's configuration would silently differ from the arm, or fail
    late."""
    from omegaconf import OmegaConf

    by_std = name_of(method.advantage) == "group_normalised"
    told = {"algorithm.norm_adv_by_std_in_grpo": (by_std, "the arm's own `advantage` decides: for Dr. GRPO's, centred")}
    if method.samplers or method.memory:
        told["algorithm.rollout_correction.bypass_mode"] = (False, "samplers and memories read verl's first pass")
    if method.profile_again:
        for key in ("temperature", "top_p", "top_k"):
            value = OmegaConf.select(config, f"{ROLLOUT}.{key}")
            told[f"{ROLLOUT}.val_kwargs.{key}"] = (value, "profiles are sampled as in training, like evaluations")
    for key, value in actor_settings(method, config.data.max_response_length).items():
        if key != "clip_ratio_c":  # the dual clip, which the papers' runs had
            told[f"{ACTOR}.{key}"] = (value, "the arm's own objective and aggregation decide")
    only = {key: ((value,), why) for key, (value, why) in {**FIXED, **told}.items()}
    ahead = _ahead(config, method) if OmegaConf.select(config, MODE) == AHEAD else {}
    for key, (values, why) in {**only, **ONE_OF, **ahead}.items():
        if (found := OmegaConf.select(config, key)) not in values:
            found, *goes = (json.dumps(value, default=str).strip('"') for value in (found, *values))
            raise SettingsError(f"{key}={found}: {why}; leave it out, or set it to {' or '.join(goes)}")
    if config.actor_rollout_ref.rollout.agent.default_agent_loop == "tool_agent":
        raise SettingsError(f"{ROLLOUT}.agent.default_agent_loop=tool_agent: a response is one turn; leave it out")


def _ahead(config: Any, method: Method) -> dict[str, tuple[tuple[Any, ...], str]]:
    """What groups that are sampled before their step ask for, as `ONE_OF`; SettingsError for an arm that cannot."""
    plan, batches = name_of(method.plan), config.trainer.v1.colocate_async.num_warmup_batches
    if plan != "uniform" or method.memory:
        why = f"its plan is {plan}" if plan != "uniform" else "it trains on rollouts of earlier steps again"
        raise SettingsError(
            f"{MODE}={AHEAD}: a step takes the groups that are finished, alike in size and new, and of this arm {why}; "
            f"leave it out, or take an arm with the plan uniform and without a memory"
        )
    if not is_whole(batches) or batches < 1:
        raise SettingsError(f"trainer.v1.colocate_async.num_warmup_batches={batches}: set a whole number from 1 on")
    kept = "no group is dropped for its age, which is logged and corrected"
    return {
        "trainer.v1.sampler.max_off_policy_threshold": ((8,), kept),
        "trainer.v1.sampler.max_off_policy_strategy": (("drop",), kept),
        WEIGHTED: (("token", "sequence"), "importance ratios correct what older weights sampled"),
        f"{ROLLOUT}.calculate_log_probs": ((True,), "importance ratios need the sampler's log-probabilities"),
    }
