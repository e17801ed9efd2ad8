"""One's own run: an arm on one's own model and data, by verl's configuration, on GPUs or on this machine's CPU.

verl's keys set everything that an arm does not: sizes, lengths, optimiser, number of steps. They come, each over the
one before, from verl's defaults, configs/verl/repro_trainer.yaml, `SIZES`, the arm, a preset, the command line. The
plan, the settings and the ledger are made from what results.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from repro.arms import bind, build
from repro.engine.profile import Profile
from repro.engine.train import stream_seed
from repro.errors import brief
from repro.files import write_json, write_parquet, write_text
from repro.methods.guard import is_whole
from repro.methods.method import Method
from repro.methods.plans import Queries
from repro.paths import CONFIGS
from repro.settings import ON_VERL, Settings, SettingsError, nearest, validated
from repro.settings.arm import EngineChanges
from repro.settings.text import read_mapping
from repro.verl import best, questions
from repro.verl.compose import check, compose, key_of, refuse, template_of, value_of
from repro.verl.composed import begun_with, record
from repro.verl.config import TEXT_AGENT, cpu_overrides
from repro.verl.data import plan_table, planned_groups
from repro.verl.identity import identified, profiled
from repro.verl.judged import OURS
from repro.verl.loss import actor_settings
from repro.verl.profile import Sampling, source_of
from repro.verl.run import PROFILE, SETTINGS, begun_alike, check_arm, check_config

PRESETS = CONFIGS / "verl" / "presets"
RUNS = Path("runs", "own")
ROUNDS = 4  # a filter's plan has four times as many groups as the run needs; verl starts over where it runs out
GROUP = "actor_rollout_ref.rollout.n"
INSTEAD = {  # keys whose files this module writes
    "data.train_files": "the arm's plan of your questions is written there: name the questions as --data",
    "data.val_files": "the held-out questions are written there: name them as --validation, beside --data",
}
SIZES = {  # for a first run; verl's own train_batch_size of 1024 prompts, one rollout each, has no groups
    "data.train_batch_size": 128,
    "data.max_prompt_length": 1024,
    "data.max_response_length": 1024,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 32,
    "actor_rollout_ref.rollout.val_kwargs.temperature": 1.0,
    "trainer.test_freq": 10,
    "trainer.save_freq": 10,
}


@dataclass(frozen=True)
class Own:
    """What the command line names. `data`, `validation`: files, or the word `sums`; `output`: the folder of the run."""

    arm: str
    model: str
    data: str
    output: Path
    validation: tuple[str, ...] = ()
    seed: int = 0
    cpu: bool = False
    gpus: tuple[int, int] = (1, 1)  # nodes, and on each
    profile: Path | None = None
    words: tuple[str, ...] = ()  # of the command line, for a sentence to repeat
    preset: Mapping[str, Any] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """A run that verl accepts, before anything is written."""

    own: Own
    config: Any
    settings: Settings
    method: Method
    train: list[dict[str, Any]]
    held_out: list[dict[str, Any]]


def preset(name: str) -> dict[str, Any]:
    """A file of configs/verl/presets: `model`, `data` and `overrides`; SettingsError with the nearest name."""
    known = {path.stem: path for path in sorted(PRESETS.glob("*.yaml"))}
    if name not in known:
        raise SettingsError(f"there is no preset {brief(name)}{nearest(name, known)}")
    content = read_mapping(known[name])
    if not isinstance(content, dict) or not isinstance(content.get("overrides", {}), dict):
        raise SettingsError(f"{known[name]} is no preset: it should be a mapping with model, data and overrides")
    return content


def prepare(own: Own, settings: Settings, tokenizer: Any = None) -> Prepared:
    """Compose and check the run. With a `tokenizer`, prompts that are too long are left out.

    SettingsError in one sentence where verl, the arm or the data do not allow it; nothing is written.
    """
    of_preset = [f"{key}={value}" for key, value in own.preset.get("overrides", {}).items()]
    refuse([*of_preset, *own.overrides], INSTEAD)
    arm = _group_of(own, settings)
    entry = settings.arm(own.arm).model_copy(update={"plan": arm})
    method = build(own.arm, entry)
    check_arm(own.arm, method)
    if entry.profile and own.profile is None:
        raise SettingsError(
            f"arms.{own.arm} plans from a profile of the model: `{_with_profile(own)} --measure` makes it, and the "
            "same without --measure trains from it"
        )
    told = [*_told(own, entry, method), *own.overrides]
    sizes = compose(told)
    ours = sizes.reward.custom_reward_function.path == OURS
    train = questions.checked(own.data, ours)
    held_out = [row for source in own.validation for row in questions.checked(source, ours)]
    if held_out:
        questions.tell_of_trained(train, held_out)
    else:
        train, held_out = questions.split(train)
    limit = sizes.data.max_prompt_length
    if tokenizer is not None:
        train = questions.short_enough(train, tokenizer, limit, template_of(sizes))
        told = [*_without_template(tokenizer, own), *told]
    told = [*told[: -len(own.overrides) or None], *_lengths(sizes, train), *own.overrides]
    config = compose(told)
    batch = config.data.train_batch_size
    if batch > len(train):
        raise SettingsError(
            f"data.train_batch_size={batch} is more than the {len(train)} training prompts of {own.data}: lower it"
        )
    _best(own, config, held_out)
    _batches(config)
    _reward(config)
    check(config)
    best.check_rhythm(config)
    check_config(config, method)
    return Prepared(own, config, _settings(own, settings, entry, config), method, train, held_out)


def planned(run: Prepared) -> tuple[Profile | None, list[Any]]:
    """The profile that the arm plans from and the plan's groups, before anything is written. SettingsError where the
    profile is of something else, or the folder holds a run that was begun otherwise."""
    own, settings = run.own, run.settings
    _sampled_whole(run)
    measured, use = _profile(run), settings.arm(own.arm).profile
    identified(run.config, (run.train, run.held_out), own.model)
    profiled(run.config, own.profile, use)
    begun_alike(settings, own.arm, own.output)
    begun_with(run.config, own.output)
    known = measured.first(use.samples).known() if measured else Queries(np.ones(len(run.train), int))
    rng = np.random.default_rng(stream_seed(own.seed, 0, "plan"))
    rollouts, steps = settings.engine.rollouts_per_step, settings.engine.steps
    plan = run.method.made_plan(0, known, rollouts, rng)
    return measured, planned_groups(plan, steps, rollouts, ROUNDS if run.method.filter is not None else 1)


def write(run: Prepared) -> Any:
    """Write the plan, the questions and the settings to the run's folder; verl's configuration that reads them.
    SettingsError as `planned`."""
    folder, settings = run.own.output, run.settings
    measured, groups = planned(run)
    if measured is not None:
        measured.save(folder / "profile", PROFILE)
    write_parquet(plan_table(run.train, groups), folder / "plan.parquet")
    write_parquet(pd.DataFrame(run.held_out), folder / "validation.parquet")
    if run.method.profile_again:
        write_parquet(pd.DataFrame(run.train), folder / "queries.parquet")
    write_json([TEXT_AGENT], folder / "agents.json")
    record(run.config, folder)
    write_text(settings.model_dump_json(indent=2) + "\n", folder / SETTINGS)
    return run.config


def _group_of(own: Own, settings: Settings) -> tuple[Any, dict[str, Any]]:
    """The arm's plan, its group size that of the command line, if it says one, else the arm's or the preset's."""
    name, parameters = settings.arm(own.arm).plan
    given = [value_of(entry) for entry in own.overrides if key_of(entry) == GROUP]
    size = given[-1] if given and is_whole(given[-1]) and given[-1] > 0 else None  # `compose` refuses others
    size = size or parameters.get("group_size") or own.preset.get("overrides", {}).get(GROUP)
    if size is None:
        return name, parameters
    try:
        bind(own.arm, "plans", name, {"group_size": size})
    except SettingsError:  # a plan that sets sizes of its own
        return name, parameters
    return name, {**parameters, "group_size": size}


def _told(own: Own, entry: Any, method: Method) -> list[str]:
    """Every override but the command line's."""
    folder = own.output
    parameters = getattr(method.plan, "keywords", {})
    own_engine = entry.engine
    values: dict[str, Any] = {
        **SIZES,
        GROUP: parameters.get("group_size", 8),
        "repro.arm": own.arm,
        "repro.seed": own.seed,
        "repro.settings": str(folder / SETTINGS),
        "repro.output": str(folder / "tables"),
        "repro.profile": str(folder / "profile") if entry.profile else None,
        "repro.queries": str(folder / "queries.parquet") if method.profile_again else None,
        "trainer.nnodes": own.gpus[0],
        "trainer.n_gpus_per_node": own.gpus[1],
        "trainer.project_name": "repro",
        "trainer.experiment_name": f"{own.arm}-seed-{own.seed}",
        "trainer.default_local_dir": str(folder / "checkpoints"),
        "data.train_files": str(folder / "plan.parquet"),
        "data.val_files": str(folder / "validation.parquet"),
        "data.seed": own.seed,
        "actor_rollout_ref.model.path": own.model,
        "actor_rollout_ref.rollout.seed": own.seed,
        "actor_rollout_ref.rollout.calculate_log_probs": True,
        "actor_rollout_ref.actor.data_loader_seed": own.seed,
        "algorithm.filter_groups.enable": method.filter is not None,
        "algorithm.norm_adv_by_std_in_grpo": entry.advantage[0] == "group_normalised",
    }
    if own_engine.kl is not None:
        values |= {"actor_rollout_ref.actor.use_kl_loss": own_engine.kl > 0}
        values |= {"actor_rollout_ref.actor.kl_loss_coef": own_engine.kl}
    if own_engine.weight_decay is not None:
        values["actor_rollout_ref.actor.optim.weight_decay"] = own_engine.weight_decay
    if own_engine.gradient_clip is not None:
        values["actor_rollout_ref.actor.optim.clip_grad"] = own_engine.gradient_clip
        values["actor_rollout_ref.actor.grad_clip"] = own_engine.gradient_clip
    values |= {key: value for key, value in own.preset.get("overrides", {}).items() if key != GROUP}
    longest = 1  # replaced by `_lengths`, once it is known
    values |= {f"actor_rollout_ref.actor.{key}": value for key, value in actor_settings(method, longest).items()}
    values |= cpu_overrides(own.gpus[1]) if own.cpu else {}
    return [f"++{key}={_written(value)}" for key, value in values.items()]


def _without_template(tokenizer: Any, own: Own) -> list[str]:
    """A base model reads the text of the prompt; verl's own agent would need a chat template."""
    if getattr(tokenizer, "chat_template", None):
        return []
    agents = str(own.output / "agents.json")
    agent = "actor_rollout_ref.rollout.agent"
    return [
        f"++{agent}.default_agent_loop={TEXT_AGENT['name']}",
        f"++{agent}.agent_loop_config_path={_written(agents)}",
    ]


def _lengths(sizes: Any, train: Sequence[Any]) -> list[str]:
    """What follows from sizes that are known only now: steps (one pass over the data), lengths."""
    steps = sizes.trainer.total_training_steps or max(1, len(train) // max(1, sizes.data.train_batch_size))
    longest = sizes.data.max_response_length
    told = [f"++trainer.total_training_steps={steps}"]
    if sizes.actor_rollout_ref.rollout.max_model_len is None:
        told += [f"++actor_rollout_ref.rollout.max_model_len={sizes.data.max_prompt_length + longest}"]
    if sizes.actor_rollout_ref.actor.loss_scale_factor is not None:
        told += [f"++actor_rollout_ref.actor.loss_scale_factor={longest}"]
    return told


def _best(own: Own, config: Any, held_out: Sequence[Mapping[str, Any]]) -> None:
    """The best checkpoint is that of the first held-out source, unless a preset or the command line says otherwise."""
    said = [*own.preset.get("overrides", {}), *map(key_of, own.overrides)]
    if "repro.best" not in said:
        config.repro.best = held_out[0]["data_source"]


def _batches(config: Any) -> None:
    rollouts = config.data.train_batch_size * config.actor_rollout_ref.rollout.n
    minibatch = config.actor_rollout_ref.actor.ppo_mini_batch_size * config.actor_rollout_ref.rollout.n
    if rollouts % minibatch:
        raise SettingsError(
            f"data.train_batch_size={config.data.train_batch_size} is not a multiple of "
            f"actor_rollout_ref.actor.ppo_mini_batch_size={config.actor_rollout_ref.actor.ppo_mini_batch_size}"
        )


def _reward(config: Any) -> None:
    """SettingsError where one's own reward function is in no file: verl would look for it once its workers are up."""
    path = config.reward.custom_reward_function.path
    if path and not path.startswith("pkg://") and not Path(path.removeprefix("file://")).is_file():
        raise SettingsError(
            f"reward.custom_reward_function.path={path}: there is no such file: name a file of Python, or pkg://MODULE"
        )


def _sampled_whole(run: Prepared) -> None:
    """SettingsError where a CPU's sampler could not sample as asked, which it would say at the first batch."""
    rollout = run.config.actor_rollout_ref.rollout
    for name, how in (("rollout", rollout), ("rollout.val_kwargs", rollout.val_kwargs)):
        if run.own.cpu and (how.top_p != 1.0 or how.top_k not in (-1, 0, None)):
            raise SettingsError(
                f"actor_rollout_ref.{name} has top_p={how.top_p} and top_k={how.top_k}: on a CPU the whole "
                "distribution is sampled, so set top_p to 1 and top_k to -1, or use GPUs"
            )


def _settings(own: Own, settings: Settings, entry: Any, config: Any) -> Settings:
    """Our settings with what verl's configuration says; the ledger, the plan and a resumed run read them."""
    actor, rollout, trainer = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout, config.trainer
    engine = EngineChanges(refill_rounds=entry.engine.refill_rounds)  # the others are in verl's configuration by now
    plain = settings.model_dump()
    plain["arms"][own.arm] = entry.model_copy(update={"engine": engine}).model_dump()
    plain["scale"] = "own"
    plain["engine"] |= {
        "device": "cpu" if own.cpu else "cuda",
        "dtype": "float32" if own.cpu else "bfloat16",
        "steps": trainer.total_training_steps,
        "rollouts_per_step": config.data.train_batch_size * rollout.n,
        "minibatch": actor.ppo_mini_batch_size * rollout.n,
        "max_new_tokens": config.data.max_response_length,
        "temperature": rollout.temperature,
        "learning_rate": actor.optim.lr,
        "weight_decay": actor.optim.weight_decay,
        "gradient_clip": actor.optim.clip_grad,
        "kl": actor.kl_loss_coef if actor.use_kl_loss else 0.0,
        "checkpoint_every": max(1, trainer.save_freq),
        "log_every": max(1, trainer.test_freq),
    }
    samples = rollout.val_kwargs.n
    temperature = max(rollout.val_kwargs.temperature or 0.0, 0.01)  # 0 is greedy; the least that our settings have
    plain["evaluation"] |= {**ON_VERL, "samples": samples, "final_samples": samples}
    plain["evaluation"]["temperature"] = temperature
    plain["policy"]["source"] = own.model
    plain["parity"]["steps"] = max(plain["parity"]["steps"], plain["engine"]["log_every"])  # not read here
    return validated(plain, "verl's configuration")


def sampling(run: Prepared) -> Sampling:
    """How the run's training samples and judges; SettingsError where a profile cannot do so."""
    data, rollout = run.config.data, run.config.actor_rollout_ref.rollout
    if (rollout.top_k or 0) > 0:
        raise SettingsError(
            f"actor_rollout_ref.rollout.top_k={rollout.top_k}: a profile is sampled without top-k, so an arm that "
            "plans from one trains without it too: leave it out, or use top_p"
        )
    lengths = data.max_prompt_length, data.max_response_length
    return Sampling(rollout.temperature, rollout.top_p, *lengths, template_of(run.config), reward_of(run.config))


def reward_of(config: Any) -> dict[str, Any] | None:
    """The reward function of one's own, None where math-verify judges."""
    from omegaconf import OmegaConf

    reward = OmegaConf.to_container(config.reward.custom_reward_function, resolve=True)
    return None if reward["path"] == OURS else reward


def _profile(run: Prepared) -> Profile | None:
    """The profile that the plan is made from; SettingsError where it is not of what is trained."""
    own, use, count = run.own, run.settings.arm(run.own.arm).profile, len(run.train)
    if use is None:
        return None
    cure = f"`{_with_profile(own)} --measure` makes one"
    if not (own.profile / f"{PROFILE}.json").exists():
        raise SettingsError(f"{own.profile} holds no finished profile: {cure}")
    measured = Profile.load(own.profile, PROFILE)
    if len(measured.prompt_tokens_Q) != count:
        found = len(measured.prompt_tokens_Q)
        raise SettingsError(f"{own.profile}: a profile of {found} prompts, but {count} are trained on; {cure}")
    if measured.samples < use.samples:
        raise SettingsError(
            f"{own.profile}: {measured.samples} samples of each prompt, and arms.{own.arm} uses {use.samples}: "
            f"`{_with_profile(own)} --measure` adds the others"
        )
    source = source_of(sampling(run), Path(own.model), run.train)
    what = {"policy": "the model", "queries": "the questions", "temperature": "", "max_new_tokens": ""}
    for name, words in what.items():
        theirs, ours = getattr(measured.source, name), getattr(source, name)
        if theirs != ours:
            raise SettingsError(
                f"{own.profile}: {words or name} of the profile is not what is trained ({theirs}, not {ours}): name "
                f"another folder as --profiles, where {cure}"
            )
    return measured


def _with_profile(own: Own) -> str:
    """The command line, with a folder for the profile."""
    words = own.words or ("--arm", own.arm, "--model", own.model, "--data", own.data)
    folder = () if own.profile else ("--profiles", str(RUNS / f"_profile-{Path(own.data).stem}"))
    return shlex.join(["python", "-m", "repro.verl", *words, *folder])


def _written(value: Any) -> str:
    """In Hydra's grammar."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return f"'{value}'" if isinstance(value, str) and not value.replace("_", "").isalnum() else str(value)
