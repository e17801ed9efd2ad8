"""From the command line to a run of a model of one's own or a paper's, on the GPUs there are or on a CPU."""

import argparse
import os
from pathlib import Path

from repro.engine.backends import why_not_vllm
from repro.engine.backends.load import SMOLLM2, TINY, fetch
from repro.evaluation.model import file_of, longest_of, require_known, stops_of, tokenizer_of
from repro.protocol.profile import Profile
from repro.settings import Settings, SettingsError
from repro.verl import prepare as preparing
from repro.verl import questions, ready, start
from repro.verl.judged import judge
from repro.verl.layers import Asked
from repro.verl.prepare import Prepared, prepare
from repro.verl.presets import DATA, Preset
from repro.verl.profile import Sampling, profile_of
from repro.verl.run import PROFILE, begun_alike, finished
from repro.verl.sums import SOURCE as SUMS


def launch(chosen: argparse.Namespace, preset: Preset, settings: Settings) -> Path | None:
    """Train, and return the folder of the tables; None for --check, which prints what would be trained, and --measure,
    which makes the profile. SettingsError, NotReady or UnsupportedVerl, in one sentence, before anything is loaded."""
    model, cpu = chosen.model or preset.model, _on_cpu(chosen, preset)
    if not model:
        raise SettingsError("name your model too: --model MODEL --data FILE")
    if cpu and not (chosen.check or chosen.measure):
        start.use_cpu()
    asked = _asked(chosen, preset, model, cpu)
    folder = _on_disk(model) if chosen.check else None
    tokenizer = tokenizer_of(asked.model) if folder or not chosen.check else None
    run = prepare(asked, settings, tokenizer)
    if tokenizer is not None:
        _require_model(run, tokenizer)
    if chosen.check:
        print("\n".join([preparing.described(run), *_unchecked(run, tokenizer is not None)]))
        return None
    if chosen.measure:
        print(f"profile of {asked.arm}: {measure(run, chosen.gpus)}")
        return None
    begun_alike(run.settings, asked.arm, asked.output)
    if finished(asked.output, run.settings.steps_of(asked.arm)):
        print(f"{asked.output} is finished: remove it to train again")
        return asked.output / "tables"
    profile = _profile(run, chosen.gpus)
    preparing.settle(run, profile)
    config = preparing.write(run, profile)
    start.run(config if cpu else ready.on_cluster(config))
    return asked.output / "tables"


def _unchecked(run: Prepared, known: bool) -> list[str]:
    """What a check has left out, a line for each; else the plan is made, and compared with the run in the folder."""
    asked, left = run.asked, []
    if not known:
        left.append(f"{asked.model} is not on this machine, so neither it nor the lengths of prompts were checked")
    if not run.train:
        left.append(f"{asked.data} lacks {asked.sets[0]}.parquet, so no plan was made")
    elif known:
        profile = preparing.known_profile(run)
        if profile is None and run.settings.arm(asked.arm).profile:
            left.append(f"{asked.profile} is to be measured first, so no plan was made")
        else:
            preparing.settle(run, profile)
    return left


def _asked(chosen: argparse.Namespace, preset: Preset, model: str, cpu: bool) -> Asked:
    overrides = tuple(chosen.overrides)
    if chosen.steps:
        overrides = (f"trainer.total_training_steps={chosen.steps}", *overrides)
    told = [*(f"{key}={value}" for key, value in preset.overrides.items()), *overrides]
    if chosen.measure:
        _can_measure(chosen, cpu)
    elif not chosen.check and not cpu:
        ready.require_machine(preset.name if preset.scale else model, chosen.arm, told)
    data, sets = _data(chosen, preset)
    if sets and not chosen.check:
        ready.require_data(sets, Path(data))
    here = (_on_disk(model) or model) if chosen.check else str(fetch(model))
    output = (chosen.output or preset.runs).resolve() / chosen.arm / f"seed-{chosen.seed}"
    return Asked(
        arm=chosen.arm,
        preset=preset,
        model=here,
        told=model if preset.scale and not Path(model).is_dir() else None,
        output=output,
        data=data,
        sets=tuple(sets),
        validation=tuple(chosen.validation),
        seed=chosen.seed,
        cpu=cpu,
        gpus=_processes(chosen, preset, cpu),
        profile=_profile_folder(chosen, output, data, sets),
        overrides=overrides,
    )


def _data(chosen: argparse.Namespace, preset: Preset) -> tuple[str, list[str]]:
    """(the questions, or the folder of prepared data sets; the names of these)."""
    data = chosen.data or preset.data
    if preset.scale and not (data == SUMS or Path(data or DATA).is_file()):
        if chosen.validation:
            raise SettingsError(f"--validation goes with a file as --data: {preset.name} names its own sets")
        return str(Path(data or DATA).resolve()), preset.scale.data_sets
    if not data:
        raise SettingsError("name your data too: --model MODEL --data FILE")
    return data, []


def _profile_folder(chosen: argparse.Namespace, output: Path, data: str, sets: list[str]) -> Path:
    """--profiles; else that of the run being resumed, else one for all arms and seeds next to them; no arm's name
    begins so."""
    if chosen.profiles is None and not chosen.measure and (output / "profile" / f"{PROFILE}.json").exists():
        return output / "profile"
    return chosen.profiles or output.parents[1] / ("_profile" if sets else f"_profile-{Path(data).stem}")


def _on_disk(model: str) -> str | None:
    """The folder of a model, None of one that is to be downloaded first, which `--check` does not."""
    if Path(model).is_dir() or model in (SMOLLM2, TINY):
        return str(fetch(model))
    cached = file_of(model, "config.json")
    return str(cached.parent) if cached else None


def _require_model(run: Prepared, tokenizer: object) -> None:
    """What would fail once the workers are up: a model that nobody can build, without an end of responses, with a
    lower limit than verl's lengths, or a reward function that cannot be loaded. ModelMissing or SettingsError."""
    model, config = run.asked.model, run.config
    require_known(model)
    stops_of(model, tokenizer)
    longest, limit = config.actor_rollout_ref.rollout.max_model_len, longest_of(model)
    if not run.asked.cpu and limit is not None and longest > limit:
        raise SettingsError(
            f"data.max_prompt_length and data.max_response_length add up to {longest}, and the model's limit is "
            f"{limit}: lower one of them"
        )
    if (reward := preparing.reward_of(config)) is not None:
        with judge(reward):
            pass


def _profile(run: Prepared, gpus: int | None) -> Profile | None:
    """The profile that the arm plans from, measured here where it is not there; None for an arm without one."""
    use = run.settings.arm(run.asked.arm).profile
    known = preparing.known_profile(run)
    return Profile.load(measure(run, gpus), PROFILE) if use and known is None else known


def measure(run: Prepared, gpus: int | None = None) -> Path:
    """Complete the profile for the run's arm, on this machine: by vLLM where it is installed, else by transformers. The
    same call resumes. SettingsError where the folder's profile is of something else, or where a prompt and its response
    do not fit the model."""
    asked, use, gpus = run.asked, run.settings.arm(run.asked.arm).profile, gpus or ready.gpus_here()
    if use is None:
        raise SettingsError(f"arms.{asked.arm} plans without a profile: leave out --measure, and train")
    if not asked.cpu and gpus == 0:
        raise _no_gpu()
    how, model = preparing.sampling(run), Path(asked.model)
    _fits(run, how, model)
    if reason := why_not_vllm():
        print(f"profiling with transformers: {reason}")
    options = {"engine": "transformers" if reason else "vllm", "dtype": "float32" if asked.cpu else "bfloat16"}
    return profile_of(how, model, run.train, use.samples, asked.profile, gpus=gpus, **options)


def _fits(run: Prepared, how: Sampling, model: Path) -> None:
    longest = max(map(len, questions.prompts_of(tokenizer_of(model), run.train, how.template)))
    limit = longest_of(model)
    if limit is not None and longest + how.max_new_tokens > limit:
        raise SettingsError(
            f"a prompt of {longest} tokens and data.max_response_length={how.max_new_tokens} exceed the model's limit "
            f"of {limit}: lower the latter to {limit - longest} or less"
        )


def _can_measure(chosen: argparse.Namespace, cpu: bool) -> None:
    if chosen.check:
        raise SettingsError("--measure: a profile is made or checked, one at a time: leave out --check")
    if ready.gpus_here() == 0 and not cpu:
        raise _no_gpu()


def _no_gpu() -> ready.NotReady:
    return ready.NotReady(
        "the model is profiled where the command runs, and there is no GPU here: run it once with --measure on a node "
        "with GPUs, or with --device cpu, far slower"
    )


def _on_cpu(chosen: argparse.Namespace, preset: Preset) -> bool:
    """Where --device says so, or nothing else is at hand; a paper's model does not train there unasked."""
    if chosen.device or preset.scale:
        return chosen.device == "cpu"
    return not os.environ.get("RAY_ADDRESS") and ready.gpus_here() == 0 and not chosen.gpus


def _processes(chosen: argparse.Namespace, preset: Preset, cpu: bool) -> tuple[int, int]:
    """(nodes, processes on each)."""
    if cpu:
        return 1, chosen.ranks
    if chosen.check or chosen.measure:
        nodes, gpus = (preset.scale.nodes.value, preset.scale.gpus_per_node.value) if preset.scale else (1, 1)
    else:
        nodes, gpus = ready.gpus_at_hand()
    return chosen.nodes or nodes, chosen.gpus or gpus
