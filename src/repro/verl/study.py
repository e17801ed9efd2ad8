"""The small policy on the questions of the settings, on this machine's CPU, as on the embedded engine.

Its sizes are the settings', so verl's keys for them are refused on the command line. Plan, profile and questions are
those of the embedded engine with the same seed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repro.engine.run import Run, profile_for
from repro.policy.model import load_policy
from repro.policy.shipped import policy_for
from repro.settings import Settings, SettingsError
from repro.tasks.queries import make_pools
from repro.tasks.tokenizer import encode
from repro.verl import prepare as preparing
from repro.verl import start
from repro.verl.compose import refuse
from repro.verl.data import query_rows
from repro.verl.layers import GROUP, Asked
from repro.verl.prepare import Prepared, ask_plainly, composed, described, sound
from repro.verl.presets import STUDY, find
from repro.verl.run import ACTOR, ROLLOUT, SETTINGS, begun_alike, changed

QUESTIONS = "the small policy's questions are those of params.yaml: task; your own go with --model and --data"
IN_PARAMS = "the settings, the plan and the ledger read params.yaml: set {} there"
INSTEAD = {  # keys of verl's that the settings of the small policy decide
    "data.train_files": QUESTIONS,
    "data.val_files": QUESTIONS,
    "trainer.total_training_steps": "settings and plan would keep theirs: give --steps, or --until to stop early",
    "data.max_response_length": IN_PARAMS.format("engine.max_new_tokens"),
    GROUP: IN_PARAMS.format("group_size of the arm's plan"),
    f"{ROLLOUT}.temperature": IN_PARAMS.format("engine.temperature"),
    f"{ROLLOUT}.val_kwargs.n": IN_PARAMS.format("evaluation.samples and evaluation.final_samples"),
    f"{ROLLOUT}.val_kwargs.temperature": IN_PARAMS.format("evaluation.temperature"),
    f"{ACTOR}.optim.lr": IN_PARAMS.format("engine.learning_rate"),
}


def asked(arm: str, seed: int, policy: Path, folder: Path, ranks: int = 1, overrides: Sequence[str] = ()) -> Asked:
    """A run in `folder`, in `ranks` data-parallel processes; `overrides`: verl's own keys."""
    model, given = str(Path(policy).resolve()), tuple(overrides)
    return Asked(arm, find(STUDY), model, folder, seed=seed, cpu=True, gpus=(1, ranks), overrides=given)


def prepare(run: Asked, settings: Settings) -> Prepared:
    """Compose and check the run; nothing is written."""
    pools = make_pools(settings.task, pretraining=False)
    _, tokenizer = load_policy(Path(run.model))
    prompts = encode(tokenizer, [query.prompt for query in [*pools.train, *pools.evaluation]])
    last = of_settings(settings, run.arm) | {"data.max_prompt_length": max(map(len, prompts))}
    _, method, config = composed(run, settings, last)
    ask_plainly(run, config, tokenizer)
    sound(run, config, method)
    rows = query_rows(pools.train), query_rows(pools.evaluation)
    return Prepared(run, config, settings, method, *rows, rows)


def write(prepared: Prepared, profiles: Path | None = None) -> Any:
    """Write the run's files; verl's configuration that reads them. `profiles`: the folder of stage `profile`'s
    profiles, for an arm with one; None measures one here, as in the embedded engine."""
    run, settings, profile = prepared.asked, prepared.settings, None
    if settings.arm(run.arm).profile:
        policy = Path(run.model)
        model, tokenizer = load_policy(policy)
        ours = Run(run.arm, run.seed, prepared.method, settings, policy, None, run.output, "", profiles)
        profile, _ = profile_for(ours, model, tokenizer, make_pools(settings.task, pretraining=False).train)
    preparing.settle(prepared, profile)
    return preparing.write(prepared, profile)


def of_settings(settings: Settings, arm: str) -> dict[str, Any]:
    """What the settings say of verl's keys."""
    engine = settings.engine_of(arm)
    return {
        "repro.rollouts_per_step": engine.rollouts_per_step,
        "repro.minibatch": engine.minibatch,
        "data.max_response_length": engine.max_new_tokens,
        f"{ACTOR}.ppo_max_token_len_per_gpu": engine.slice_tokens,
        f"{ACTOR}.optim.lr": engine.learning_rate,
        f"{ACTOR}.optim.weight_decay": engine.weight_decay,
        f"{ACTOR}.optim.clip_grad": engine.gradient_clip,
        f"{ACTOR}.use_kl_loss": engine.kl > 0,
        f"{ACTOR}.kl_loss_coef": engine.kl,
        GROUP: 1,  # group sizes are in the plan's rows
        f"{ROLLOUT}.temperature": engine.temperature,
        f"{ROLLOUT}.val_kwargs.temperature": settings.evaluation.temperature,
        "trainer.total_training_steps": settings.steps_of(arm),
        "trainer.save_freq": engine.checkpoint_every,
        "trainer.test_freq": engine.log_every,  # verl's loop evaluates at fixed steps, not at fixed budgets
    }


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
    until: int | None = None,
    check: bool = False,
) -> Path | None:
    """One run of the small policy on this machine's CPU, in the folder `<output>/<arm>/seed-<seed>`. Returns
    `<output>/<arm>`, with the tables of all seeds trained so far with these settings; None with `check`, which prints
    what would be trained. SettingsError, before anything is written, if verl does not support the arm or the folder
    holds a run that cannot be resumed."""
    folder = output / arm / f"seed-{seed}"
    if (rollouts := settings.engine_of(arm).rollouts_per_step) % ranks:
        raise SettingsError(f"--ranks {ranks} does not divide the {rollouts} rollouts of a step")
    refuse(overrides, INSTEAD)
    if (folder / SETTINGS).exists() and not resume and not check:
        raise SettingsError(f"{folder} holds a run: resume it with --resume, or remove the folder to start over")
    begun_alike(settings, arm, folder)
    if not check:
        start.use_cpu()
    if until:
        overrides = [*overrides, f"trainer.total_training_steps={min(until, settings.steps_of(arm))}"]
    prepared = prepare(asked(arm, seed, policy or policy_for(settings), folder, ranks, overrides), settings)
    if check:
        print(described(prepared))
        return None
    start.run(write(prepared, profiles))
    from repro.verl.record import gather

    same = [path for path in (output / arm).glob("seed-*/tables") if not changed(settings, arm, path.parent)]
    gather(sorted(same), output / arm)
    return output / arm
