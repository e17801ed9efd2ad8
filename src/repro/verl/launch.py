"""`python -m repro.verl --model …`: from the command line to a run of one's own (repro.verl.own)."""

import argparse
import os
from pathlib import Path
from typing import Any

from repro.engine.backends import why_not_vllm
from repro.engine.backends.load import SMOLLM2, TINY
from repro.evaluation.model import file_of, longest_of, require_known, stops_of, tokenizer_of
from repro.paths import ROOT
from repro.settings import Settings, SettingsError, load
from repro.verl import own, questions, ready, start
from repro.verl.judged import judge
from repro.verl.own import Own, Prepared
from repro.verl.profile import Sampling, profile_of
from repro.verl.version import require_plugin, require_verl


def launch(chosen: argparse.Namespace) -> Path | None:
    """Train, or return None: --check prints what would be trained, --measure makes the profile. SettingsError, NotReady
    or UnsupportedVerl, in one sentence, before anything is loaded."""
    require_verl()
    preset = own.preset(chosen.preset) if chosen.preset else {}
    model, data = chosen.model or preset.get("model"), chosen.data or preset.get("data")
    if not model or not data:
        raise SettingsError(f"name your {'model' if not model else 'data'} too: --model MODEL --data FILE")
    cpu = _on_cpu(chosen)
    if cpu and not (chosen.check or chosen.measure):
        start.use_cpu()
    overrides = tuple(chosen.overrides)
    if bad := [entry for entry in overrides if "=" not in entry]:
        raise SettingsError(f"{bad[0]}: write a verl setting as KEY=VALUE")
    if chosen.steps:
        overrides = (f"trainer.total_training_steps={chosen.steps}", *overrides)
    settings = load()
    settings.arm(chosen.arm)  # misspelt arms before GPUs are looked for
    told = [*(f"{key}={value}" for key, value in preset.get("overrides", {}).items()), *overrides]
    if chosen.measure:
        _can_measure(chosen)
    elif not chosen.check and not cpu:
        ready.require_machine(model, chosen.arm, told)
    folder = _on_disk(str(model)) if chosen.check else None
    run = Own(
        arm=chosen.arm,
        model=(folder or str(model)) if chosen.check else str(ready.local_model(model)),
        data=data,
        output=(chosen.output or ROOT / own.RUNS).resolve() / chosen.arm / f"seed-{chosen.seed}",
        validation=tuple(chosen.validation),
        seed=chosen.seed,
        cpu=cpu,
        gpus=_processes(chosen, cpu),
        profile=chosen.profiles,
        words=tuple(word for word in chosen.words if word not in ("--check", "--measure")),
        preset=preset,
        overrides=overrides,
    )
    tokenizer = tokenizer_of(run.model) if folder or not chosen.check else None
    prepared = own.prepare(run, settings, tokenizer)
    if tokenizer is None:
        print(f"{run.model} is not on this machine, so neither it nor the lengths of prompts were checked")
    else:
        _require_model(prepared, tokenizer)
    if chosen.check:
        if tokenizer is not None:
            own.planned(prepared)
        print(described(prepared, settings))
        return None
    if chosen.measure:
        print(f"profile of {run.arm}: {measure(prepared, chosen.gpus or ready.gpus_here())}")
        return None
    _train(prepared)
    return run.output / "tables"


def described(run: Prepared, settings: Settings) -> str:
    """What would be trained, and every value of verl's configuration that is not its own default."""
    from repro.verl.compose import compose
    from repro.verl.composed import values

    engine, ours = run.settings.engine_of(run.own.arm), run.config.repro
    defaults, now = values(compose([])), values(run.config)
    changed = [f"{key}={value}" for key, value in now.items() if defaults.get(key) != value]
    where = "this machine's CPU" if run.own.cpu else f"{run.own.gpus[0]} node(s) with {run.own.gpus[1]} GPU(s)"
    return "\n".join(
        [
            f"verl accepts {run.own.model} with arm {run.own.arm}, on {where}",
            f"{len(run.train)} training and {len(run.held_out)} held-out prompts; {engine.steps} steps of "
            f"{engine.rollouts_per_step} rollouts, mini-batches of {engine.minibatch}; output: {ours.output}",
            "over verl's defaults and configs/verl/repro_trainer.yaml:",
            *sorted(changed),
        ]
    )


def _on_disk(model: str) -> str | None:
    """The folder of a model, None of one that is to be downloaded first, which `--check` does not."""
    if Path(model).is_dir() or model in (SMOLLM2, TINY):
        return str(ready.local_model(model))
    cached = file_of(model, "config.json")
    return str(cached.parent) if cached else None


def _require_model(run: Prepared, tokenizer: Any) -> None:
    """What would fail once the workers are up: a model that nobody can build, without an end of responses, with a
    lower limit than verl's lengths, or a reward function that cannot be loaded. ModelMissing or SettingsError."""
    model, config = run.own.model, run.config
    require_known(model)
    stops_of(model, tokenizer)
    longest, limit = config.actor_rollout_ref.rollout.max_model_len, longest_of(model)
    if not run.own.cpu and limit is not None and longest > limit:
        raise SettingsError(
            f"data.max_prompt_length and data.max_response_length add up to {longest}, and the model's limit is "
            f"{limit}: lower one of them"
        )
    if (reward := own.reward_of(config)) is not None:
        with judge(reward):
            pass


def measure(run: Prepared, gpus: int) -> Path:
    """Complete the profile in `--profiles` for the run's arm, on this machine: by vLLM where it is installed, else by
    transformers. The same call resumes. SettingsError where the folder's profile is of something else, or where a
    prompt and its response do not fit the model."""
    mine, use = run.own, run.settings.arm(run.own.arm).profile
    if use is None:
        raise SettingsError(f"arms.{mine.arm} plans without a profile: leave out --measure, and train")
    how, model = own.sampling(run), Path(mine.model)
    _fits(run, how, model)
    if reason := why_not_vllm():
        print(f"profiling with transformers: {reason}")
    options = {"engine": "transformers" if reason else "vllm", "dtype": "float32" if mine.cpu else "bfloat16"}
    return profile_of(how, model, run.train, use.samples, mine.profile, gpus=gpus, **options)


def _fits(run: Prepared, how: Sampling, model: Path) -> None:
    longest = max(map(len, questions.prompts_of(tokenizer_of(model), run.train, how.template)))
    limit = longest_of(model)
    if limit is not None and longest + how.max_new_tokens > limit:
        raise SettingsError(
            f"a prompt of {longest} tokens and data.max_response_length={how.max_new_tokens} exceed the model's limit "
            f"of {limit}: lower the latter to {limit - longest} or less"
        )


def _can_measure(chosen: argparse.Namespace) -> None:
    if chosen.check or chosen.profiles is None:
        what = "is made or checked, one at a time: leave out --check" if chosen.check else "needs --profiles FOLDER"
        raise SettingsError(f"--measure: a profile {what}")
    if ready.gpus_here() == 0 and not _on_cpu(chosen):
        raise ready.NotReady(
            "the model is profiled where the command runs, and there is no GPU here: run it on a node with GPUs, or "
            "with --device cpu, far slower"
        )


def _on_cpu(chosen: argparse.Namespace) -> bool:
    if chosen.device:
        return chosen.device == "cpu"
    return not os.environ.get("RAY_ADDRESS") and ready.gpus_here() == 0 and not chosen.gpus


def _processes(chosen: argparse.Namespace, cpu: bool) -> tuple[int, int]:
    """(nodes, processes on each)."""
    if cpu:
        return 1, chosen.ranks
    nodes, gpus = (1, 1) if chosen.check or chosen.measure else ready.gpus_at_hand()
    return chosen.nodes or nodes, chosen.gpus or gpus


def _train(prepared: Prepared) -> None:
    if prepared.own.cpu:
        require_plugin()
        start.run(own.write(prepared))
    else:
        start.run(ready.on_cluster(own.write(prepared)))
