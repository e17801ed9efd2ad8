"""What ArmTrainer does not do, each in one sentence with what to do instead."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np
from datasets import IterableDataset

from repro.arms import build
from repro.data.clean import keys_of, told_of
from repro.errors import brief
from repro.methods.guard import MethodError, is_whole, name_of
from repro.methods.plans import Queries
from repro.settings import Arm, SettingsError
from repro.trl.named import VARIED

# Of an arm; `objective` next to them.
PARTS = ("plan", "reward", "filter", "memory", "advantage", "samplers", "aggregation")
# GRPOConfig's settings of the advantage and the loss, for which an arm has its own.
ADVANTAGE = ("scale_rewards", "multi_objective_aggregation")
LOSS = (
    *("loss_type", "epsilon", "epsilon_high", "delta", "importance_sampling_level", "top_entropy_quantile"),
    *("entropy_coef", "use_adaptive_entropy", "off_policy_mask_threshold"),
)
TRUTHS = ("solution", "answer", "ground_truth", "label")  # columns that hold truths, of which the first counts
# An arm's changes of the engine (`Arm.engine`), by their names in GRPOConfig.
ENGINE = {
    **{"kl": "beta", "weight_decay": "weight_decay", "learning_rate": "learning_rate", "steps": "max_steps"},
    **{"gradient_clip": "max_grad_norm", "rollouts_per_step": "generation_batch_size"},
}
# What the methods and their lookup call by its place in params.yaml, in the words of a trainer's caller.
WORDS = {
    "task.train_queries": "the number of rows of train_dataset",
    "engine.rollouts_per_step": "GRPOConfig's generation_batch_size",
}


@contextmanager
def in_its_words(given: Sequence[str]) -> Iterator[None]:
    """Errors about an arm or its plan name ArmTrainer's arguments `given` and GRPOConfig, not params.yaml."""
    place = f"ArmTrainer({', '.join(f'{part}=' for part in given) or 'arm='})"
    try:
        yield
    except SettingsError as error:
        raise SettingsError(str(error).replace("params.yaml: arms.own", place).replace("arm own", place)) from None
    except MethodError as error:
        said = error.said
        for theirs, ours in WORDS.items():
            said = said.replace(theirs, ours)
        raise MethodError(said, error.where.replace("arm own", place)) from error


def require_arm(arm: Arm, profile: Any) -> None:
    """SettingsError if the arm needs a profile that is missing, or to profile during training; and if a part of it
    is wrong."""
    if arm.profile and arm.profile.again:
        raise SettingsError(
            f"repro.trl cannot profile the queries during training, as {arm.title} does {arm.profile.again} times; "
            "choose an arm that profiles them once, and pass `profile`"
        )
    if arm.profile and profile is None:
        raise SettingsError(
            f"{arm.title} plans from a profile of the queries: sample {arm.profile.samples} completions of each row of "
            "train_dataset beforehand, and pass profile=Queries(prompt_tokens_Q, successes_Q, samples_Q)"
        )
    build("own", arm)


def takes_its_own(arm: Arm, given: Sequence[str], objective: Any) -> bool:
    """Whether the advantage is the arm's and not TRL's. SettingsError where TRL's loss is asked for, or by default,
    next to a loss of the arm's own."""
    if objective not in (None, "trl"):
        return True
    if "aggregation" in given:
        raise SettingsError(
            "ArmTrainer(aggregation=) has no effect on TRL's loss: add objective='arm', or set GRPOConfig(loss_type=)"
        )
    usual = {name: field.default for name, field in Arm.model_fields.items()}
    if objective is None and (arm.objective != usual["objective"] or arm.aggregation == "constant-length"):
        raise SettingsError(
            f"{arm.title} has a loss of its own: choose ArmTrainer(objective='arm'), or 'trl' for that of GRPOConfig"
        )
    return "advantage" in given or arm.advantage != usual["advantage"]


def require_given(profile: Any, refill_rounds: Any) -> None:
    """SettingsError on what is no profile, or no number of rounds; None stands for neither."""
    if profile is not None and not isinstance(profile, Queries):
        raise SettingsError(f"profile is {brief(profile)}: pass Queries(prompt_tokens_Q, successes_Q, samples_Q)")
    if refill_rounds is not None and not (is_whole(refill_rounds) and refill_rounds >= 1):
        raise SettingsError(
            f"refill_rounds is {brief(refill_rounds)}: give a whole number of at least 1, or leave it out"
        )


def require_finite(rewards_N: np.ndarray) -> None:
    """SettingsError on an infinite reward; NaN says that no function judged a completion."""
    if np.isinf(rewards_N).any():
        row = int(np.flatnonzero(np.isinf(rewards_N))[0])
        raise SettingsError(
            f"the rewards of completion {row} sum to {rewards_N[row]} in TRL's 32-bit numbers: let reward_funcs return "
            "numbers of at most 1e38, or None for what they do not judge"
        )


def require_config(args: Any, arm: Arm, own_loss: bool, own_advantage: bool) -> None:
    """SettingsError on a setting of GRPOConfig that would have no effect, or that contradicts the arm. `own_loss`: the
    loss is TRL's; `own_advantage`: the advantages are the arm's."""
    defaults = {field.name: field.default for field in fields(args)}
    names = [*(ADVANTAGE if own_advantage else ()), *(() if own_loss else LOSS)]
    names += ADVANTAGE[1:] if arm.reward != Arm.model_fields["reward"].default else []  # it changes their sum
    for name in names:
        if getattr(args, name) != defaults[name]:
            raise SettingsError(
                f"GRPOConfig({name}={getattr(args, name)!r}) would have no effect: {arm.title} has its own; remove it, "
                "or leave it to TRL, by ArmTrainer(objective='trl') without `advantage` and `reward`"
            )
    wanted = {ENGINE[name]: value for name, value in arm.engine.given.items() if name in ENGINE}
    if arm.plan[0] == "uniform" and "group_size" in arm.plan[1]:
        wanted["num_generations"] = arm.plan[1]["group_size"]
    if wanted := {name: value for name, value in wanted.items() if getattr(args, name) != value}:
        values = ", ".join(f"{name}={value}" for name, value in wanted.items())
        raise SettingsError(f"{arm.title} has settings of its own: give it GRPOConfig({values})")
    if args.steps_per_generation % args.gradient_accumulation_steps:
        raise SettingsError(
            f"steps_per_generation {args.steps_per_generation} is not a multiple of gradient_accumulation_steps "
            f"{args.gradient_accumulation_steps}: an optimiser step would mix two selections; make it one"
        )


def warn_of_questions(trainer: Any) -> None:
    """Warn of what is odd about the rows, as where a run on verl loads them: a blank truth (a column of `TRUTHS`),
    repeats, different answers, evaluation questions that are trained on. Streamed data sets are not read."""
    sets = [trainer.train_dataset, *_datasets(trainer.eval_dataset)]
    keys: list[set[str]] = []
    for name, rows in zip(("train_dataset", *["eval_dataset"] * len(sets)), sets, strict=False):
        columns = getattr(rows, "column_names", None) or []
        if isinstance(rows, IterableDataset) or "prompt" not in columns:
            continue
        keys_N = keys_of(map(_asked, rows["prompt"]))
        keys.append(set(keys_N))
        answers = [
            ["" if answer is None else str(answer) for answer in rows[column]] for column in TRUTHS if column in columns
        ]
        told = told_of(keys_N, answers[0] if answers else None)
        if blank := [row for row, answer in enumerate(answers[0] if answers else []) if not answer.strip()]:
            told.append(f"{len(blank)} rows have a blank answer, as row {blank[0]}: no response can match it")
        if len(keys) > 1 and (both := len(keys[0] & keys[-1])):
            told.append(f"{both} of {len(keys[-1])} questions are trained on too")
        for each in told:
            warnings.warn(f"{name}: {each}", stacklevel=3)


def warn_of_equal(rewards_N: np.ndarray) -> None:
    """Warn where no reward of the first batch differs from another."""
    if len(rewards_N) > 1 and np.ptp(rewards_N) == 0:
        warnings.warn(
            f"every reward of the first batch is {rewards_N[0]:g}: while none differs, nothing is learnt", stacklevel=3
        )


def warn_of_sum(trainer: Any) -> None:
    """Warn where a filter or sampler by variance reads the sum of several rewards."""
    parts = [trainer.method.filter, *trainer.method.samplers]
    varied = [name for part in parts if part and (name := name_of(part)) in VARIED]
    if varied and len(names := trainer.reward_func_names) > 1:
        warnings.warn(
            f"{' and '.join(varied)} tells rollouts apart by the sum of {', '.join(names)}: a bonus for length alone "
            "makes every group vary. Name the reward that should decide: ArmTrainer(signal_reward=…)",
            stacklevel=3,
        )


def _datasets(given: Any) -> list[Any]:
    return list(given.values()) if isinstance(given, dict) else [] if given is None else [given]


def _asked(prompt: Any) -> str:
    said = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    return "\n".join(str(each["content"]) for each in said if each["role"] == "user")


def require_setting(trainer: Any, planned: bool, uniform: bool) -> None:
    """SettingsError on a model, a data set or a process group that selection does not support."""
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        raise SettingsError(
            "repro.trl has a whole model in each process: remove `deepspeed` and `fsdp`, as in `accelerate launch "
            "--multi_gpu` with vLLM on other GPUs in server mode, or use verl"
        )
    if trainer.aux_loss_enabled and not trainer.own_loss:
        raise SettingsError("the arm's loss has no load-balancing term: set GRPOConfig(router_aux_loss_coef=0.0)")
    if planned and isinstance(trainer.train_dataset, IterableDataset):
        raise SettingsError(
            "a filter refills its batch, and a plan chooses its queries, from a data set with an index: load it "
            "without streaming"
        )
    if not (uniform or trainer.shuffle_dataset):
        raise SettingsError(
            f"GRPOConfig(shuffle_dataset=False) would have no effect: plan {name_of(trainer.method.plan)} chooses the "
            "order of the queries; remove it, or choose an arm with the plan `uniform`"
        )


def require_text(output: dict) -> None:
    """SettingsError on a batch with images."""
    if "pixel_values" in output or "num_images" in output:
        raise SettingsError("repro.trl cannot select among rollouts with images yet: use prompts of text")
