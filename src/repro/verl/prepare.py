"""A run that verl accepts, and its files: the questions, the profile, the settings, the configuration.

verl's keys set everything that an arm does not: sizes, lengths, optimiser, number of steps (repro.verl.layers). The
plan, the settings and the ledger are made from what results. Of the small policy it is the other way round
(repro.verl.study).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from repro.arms import build
from repro.files import read_parquet, write_json, write_parquet, write_text
from repro.methods.method import Method
from repro.methods.plans import Queries
from repro.protocol.profile import Profile
from repro.protocol.streams import stream_seed
from repro.settings import ON_VERL, Arm, Settings, SettingsError, validated
from repro.settings.arm import EngineChanges
from repro.settings.fields import COLDEST
from repro.verl import best, questions
from repro.verl.compose import check, compose, refuse, template_of, verls_own
from repro.verl.composed import begun_with, flat, record, values
from repro.verl.identity import identified, profiled
from repro.verl.judged import OURS
from repro.verl.layers import GROUP, Asked, arm_of, layered, written
from repro.verl.papers import EVALUATION, PaperScale
from repro.verl.profile import Sampling, source_of
from repro.verl.run import ACTOR, PROFILE, ROLLOUT, SETTINGS, begun_alike, check_config

TEXT_AGENT = {"name": "repro_text", "_target_": "repro.verl.text_agent.TextAgentLoop"}
INSTEAD = {  # keys whose files this module writes
    "data.train_files": "the run's questions are there: name the questions, or the data sets' folder, as --data",
    "data.val_files": "the held-out questions are written there: name them as --validation, next to --data",
    "actor_rollout_ref.model.path": "name the model as --model",
}
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Prepared:
    """A run that verl accepts, before anything is written. `train`, `held_out`: rows in verl's format, none where data
    sets are yet to be prepared; `data`: what their hash is of."""

    asked: Asked
    config: Any
    settings: Settings
    method: Method
    train: Rows
    held_out: Rows
    data: Sequence[Rows]


def prepare(asked: Asked, settings: Settings, tokenizer: Any = None) -> Prepared:
    """Compose and check the run. With a `tokenizer`, prompts that are too long are left out.

    SettingsError in one sentence where verl, the arm or the data do not allow it; nothing is written.
    """
    refuse([*(f"{key}={value}" for key, value in asked.preset.overrides.items()), *asked.overrides], INSTEAD)
    entry, method, config = composed(asked, settings)
    train, held_out = _questions(asked, config)
    data = (train, held_out) if not asked.sets else (train, *(_rows_of(name, asked) for name in asked.sets[1:]))
    if tokenizer is not None and train:
        train = questions.short_enough(train, tokenizer, config.data.max_prompt_length, template_of(config))
        data = data if asked.sets else (train, held_out)
    if asked.preset.scale and train:
        _tell_difference(asked.preset.scale, len(data[0]))
    _follow(asked, config, train, held_out)
    if tokenizer is not None:
        ask_plainly(asked, config, tokenizer)
    sound(asked, config, method)
    if train and (batch := config.data.train_batch_size) > len(train):
        raise SettingsError(
            f"data.train_batch_size={batch} is more than the {len(train)} training prompts of {asked.data}: lower it"
        )
    ours = settings_of(asked, settings, entry, flat(config))
    return Prepared(asked, config, ours, method, train, held_out, data)


def composed(asked: Asked, settings: Settings, last: Mapping[str, Any] | None = None) -> tuple[Arm, Method, Any]:
    """(the arm, its functions, verl's configuration for it): verl's defaults, the preset, the arm, `last`, the command
    line. SettingsError where verl's trainer does not support the arm, or verl has no such setting."""
    entry = arm_of(asked, settings)
    method = build(asked.arm, entry)
    layers = layered(asked, settings, entry, method) | (last or {})
    config = compose([*written(layers), *asked.overrides])
    actor = config.actor_rollout_ref.actor
    if actor.loss_scale_factor is not None and not asked.says(f"{ACTOR}.loss_scale_factor"):
        actor.loss_scale_factor = config.data.max_response_length
    return entry, method, config


def sound(asked: Asked, config: Any, method: Method) -> None:
    """SettingsError where verl or our trainer would refuse the configuration, or fail on it once its workers are up."""
    _batches(config)
    _reward(config)
    check_config(config, method)
    check(config)
    best.check_rhythm(config)


def described(run: Prepared) -> str:
    """What would be trained, and every value of verl's configuration that is not its own default."""
    asked, engine = run.asked, run.settings.engine_of(run.asked.arm)
    defaults, now = values(verls_own()), values(run.config)
    changed = [f"{key}={value}" for key, value in now.items() if defaults.get(key) != value]
    where = "this machine's CPU" if asked.cpu else f"{asked.gpus[0]} node(s) with {asked.gpus[1]} GPU(s)"
    return "\n".join(
        [
            f"verl accepts {asked.told or asked.model} with arm {asked.arm}, on {where}",
            f"{len(run.train)} training and {sum(map(len, run.data[1:]))} held-out prompts; {engine.steps} steps of "
            f"{engine.rollouts_per_step} rollouts, mini-batches of {engine.minibatch}; output: {asked.output}",
            "over verl's defaults and configs/verl/repro_trainer.yaml:",
            *sorted(changed),
        ]
    )


def settle(run: Prepared, profile: Profile | None) -> None:
    """Try a step of the plan, and write what the run reads, by its hashes, into verl's configuration. SettingsError
    where the folder holds a run that was begun otherwise: with other settings, values of verl's, data, weights or
    profile."""
    asked, config, use = run.asked, run.config, run.settings.arm(run.asked.arm).profile
    if asked.cpu:
        _sampled_whole(config)
    identified(config, run.data, asked.model)
    profiled(config, profile, use)
    known = profile.first(use.samples).known() if use else Queries(np.ones(len(run.train), int))
    engine, rng = run.settings.engine_of(asked.arm), np.random.default_rng(stream_seed(asked.seed, 0, "plan"))
    step = run.method.made_plan(0, known, engine.rollouts_per_step, rng).fill_step(engine.rollouts_per_step)
    if asked.study and not asked.says("data.train_batch_size"):
        config.data.train_batch_size = len(step)
    begun_alike(run.settings, asked.arm, asked.output)
    begun_with(config, asked.output)


def write(run: Prepared, profile: Profile | None) -> Any:
    """Write the questions, the profile and the settings to the run's folder; verl's configuration that reads them."""
    folder = run.asked.output
    if profile is not None:
        profile.save(folder / "profile", PROFILE)
    write_parquet(pd.DataFrame(run.train), folder / "queries.parquet")
    if not run.asked.sets:
        write_parquet(pd.DataFrame(run.held_out), folder / "validation.parquet")
    write_json([TEXT_AGENT], folder / "agents.json")
    record(run.config, folder)
    write_text(run.settings.model_dump_json(indent=2) + "\n", folder / SETTINGS)  # last: it marks the folder as a run
    return run.config


def _questions(asked: Asked, config: Any) -> tuple[Rows, Rows]:
    """(training, held out): prepared data sets as they are, or questions of one's own, checked."""
    if asked.sets:
        return _rows_of(asked.sets[0], asked), []
    ours = config.reward.custom_reward_function.path == OURS
    train = questions.checked(asked.data, ours)
    held_out = [row for source in asked.validation for row in questions.checked(source, ours)]
    if not held_out:
        return questions.split(train)
    questions.tell_of_trained(train, held_out)
    return train, held_out


def _rows_of(name: str, asked: Asked) -> Rows:
    path = Path(asked.data) / f"{name}.parquet"
    return read_parquet(path, "python -m repro.data prepare").to_dict("records") if path.exists() else []


def _tell_difference(scale: PaperScale, count: int) -> None:
    """Print a line where the training set has another number of questions than the scale's steps are counted from."""
    if count != (told := scale.train_queries.value):
        print(
            f"{scale.train_data.value}: {count} questions are prepared, and the {scale.steps} steps of {scale.name} "
            f"count {told}; `repro.data prepare --keep-evaluated` keeps those of the evaluation sets, as in the papers"
        )


def _follow(asked: Asked, config: Any, train: Rows, held_out: Rows) -> None:
    """What follows from sizes that are known only now: steps (one pass over the data), the longest sequence; and the
    data source of the best checkpoint, the first that is held out."""
    sizes, trainer, rollout = config.data, config.trainer, config.actor_rollout_ref.rollout
    if trainer.total_training_steps is None:
        trainer.total_training_steps = max(1, len(train) // sizes.train_batch_size)
    if rollout.max_model_len is None:
        rollout.max_model_len = sizes.max_prompt_length + sizes.max_response_length
    if held_out and "repro.best" not in asked.preset.overrides and not asked.says("repro.best"):
        config.repro.best = held_out[0]["data_source"]


def ask_plainly(asked: Asked, config: Any, tokenizer: Any) -> None:
    """A base model, without a chat template, reads the text of the prompt; verl's own agent would need a template."""
    agent = config.actor_rollout_ref.rollout.agent
    if not getattr(tokenizer, "chat_template", None) and not asked.says(f"{ROLLOUT}.agent.default_agent_loop"):
        agent.default_agent_loop = TEXT_AGENT["name"]
        agent.agent_loop_config_path = str(asked.output / "agents.json")


def _batches(config: Any) -> None:
    if config.data.train_batch_size % config.actor_rollout_ref.actor.ppo_mini_batch_size:
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


def _sampled_whole(config: Any) -> None:
    """SettingsError where a CPU's sampler could not sample as asked, which it would say at the first batch."""
    rollout = config.actor_rollout_ref.rollout
    for name, how in (("rollout", rollout), ("rollout.val_kwargs", rollout.val_kwargs)):
        if how.top_p != 1.0 or how.top_k not in (-1, 0, None):
            raise SettingsError(
                f"actor_rollout_ref.{name} has top_p={how.top_p} and top_k={how.top_k}: on a CPU the whole "
                "distribution is sampled, so set top_p to 1 and top_k to -1, or use GPUs"
            )


def settings_of(asked: Asked, settings: Settings, entry: Arm, said: Mapping[str, Any]) -> Settings:
    """Our settings with what verl's configuration says, {key: value}; the ledger, the plan and a resumed run read
    them."""
    plain, group, scale = settings.model_dump(), said[GROUP], asked.preset.scale
    # What else an arm sets of the engine is in verl's configuration by now.
    own = entry.model_copy(update={"engine": EngineChanges(refill_rounds=entry.engine.refill_rounds)})
    plain["arms" if asked.arm in settings.arms else "more_arms"][asked.arm] = own.model_dump()
    plain["scale"] = scale.name if scale else "own"
    plain["engine"] |= {
        "device": "cpu" if asked.cpu else "cuda",
        "dtype": "float32" if asked.cpu else "bfloat16",
        "steps": said["trainer.total_training_steps"],
        "rollouts_per_step": said["data.train_batch_size"] * group,
        "minibatch": said[f"{ACTOR}.ppo_mini_batch_size"] * group,
        "max_new_tokens": said["data.max_response_length"],
        "temperature": said[f"{ROLLOUT}.temperature"],
        "learning_rate": said[f"{ACTOR}.optim.lr"],
        "weight_decay": said[f"{ACTOR}.optim.weight_decay"],
        "gradient_clip": said[f"{ACTOR}.optim.clip_grad"],
        "kl": said[f"{ACTOR}.kl_loss_coef"] if said[f"{ACTOR}.use_kl_loss"] else 0.0,
        "checkpoint_every": max(1, said["trainer.save_freq"]),
        "log_every": max(1, said["trainer.test_freq"]),
    }
    samples = said.get(f"{ROLLOUT}.val_kwargs.n", EVALUATION["samples"])
    final = EVALUATION["final_samples"] if scale and samples == EVALUATION["samples"] else samples
    heat = max(said[f"{ROLLOUT}.val_kwargs.temperature"] or 0.0, COLDEST)  # 0 is greedy
    plain["evaluation"] |= {**ON_VERL, "samples": samples, "final_samples": final, "temperature": heat}
    plain["policy"]["source"] = asked.model
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


def known_profile(run: Prepared) -> Profile | None:
    """The profile that the plan is made from; None where the arm needs none, or where it is to be measured, or has too
    few samples. SettingsError where it is not of what is trained."""
    asked, use, count = run.asked, run.settings.arm(run.asked.arm).profile, len(run.train)
    if use is None or not (asked.profile / f"{PROFILE}.json").exists():
        return None
    measured = Profile.load(asked.profile, PROFILE)
    if len(measured.prompt_tokens_Q) != count:
        found = len(measured.prompt_tokens_Q)
        raise SettingsError(
            f"{asked.profile}: a profile of {found} prompts, but {count} are trained on: name another folder as "
            "--profiles, and one is measured there"
        )
    source = source_of(sampling(run), Path(asked.model), run.train)
    what = {"policy": "the model", "queries": "the questions", "temperature": "", "max_new_tokens": ""}
    for name, words in what.items():
        theirs, ours = getattr(measured.source, name), getattr(source, name)
        if theirs != ours:
            raise SettingsError(
                f"{asked.profile}: {words or name} of the profile is not what is trained ({theirs}, not "
                f"{ours}): name another folder as --profiles, and one is measured there"
            )
    return measured if measured.samples >= use.samples else None
