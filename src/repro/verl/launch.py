"""`python -m repro.verl --model …`: from the command line to a run of one's own (repro.verl.own)."""

import argparse
import os
from pathlib import Path

from repro.evaluation.model import tokenizer_of
from repro.paths import ROOT
from repro.settings import Settings, SettingsError, load
from repro.verl import own, ready, start
from repro.verl.own import Own, Prepared
from repro.verl.version import require_plugin, require_verl

RUNS = Path("runs", "own")


def launch(chosen: argparse.Namespace) -> Path | None:
    """Train, or with --check print what would be trained and return None. SettingsError, NotReady or UnsupportedVerl,
    in one sentence, before anything is loaded."""
    require_verl()
    preset = own.preset(chosen.preset) if chosen.preset else {}
    model, data = chosen.model or preset.get("model"), chosen.data or preset.get("data")
    if not model or not data:
        raise SettingsError(f"name your {'model' if not model else 'data'} too: --model MODEL --data FILE")
    cpu = _on_cpu(chosen)
    if cpu and not chosen.check:
        start.use_cpu()
    overrides = tuple(chosen.overrides)
    if bad := [entry for entry in overrides if "=" not in entry]:
        raise SettingsError(f"{bad[0]}: write a verl setting as KEY=VALUE")
    if chosen.steps:
        overrides = (f"trainer.total_training_steps={chosen.steps}", *overrides)
    settings = load()
    settings.arm(chosen.arm)  # misspelt arms before GPUs are looked for
    told = [*(f"{key}={value}" for key, value in preset.get("overrides", {}).items()), *overrides]
    if not chosen.check and not cpu:
        ready.require_machine(model, chosen.arm, told)
    run = Own(
        arm=chosen.arm,
        model=str(model) if chosen.check else str(ready.local_model(model)),
        data=data,
        output=(chosen.output or ROOT / RUNS).resolve() / chosen.arm / f"seed-{chosen.seed}",
        validation=tuple(chosen.validation),
        seed=chosen.seed,
        cpu=cpu,
        gpus=_processes(chosen, cpu),
        profile=chosen.profiles,
        preset=preset,
        overrides=overrides,
    )
    prepared = own.prepare(run, settings, None if chosen.check else tokenizer_of(run.model))
    if chosen.check:
        print(described(prepared, settings))
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


def _on_cpu(chosen: argparse.Namespace) -> bool:
    if chosen.device:
        return chosen.device == "cpu"
    return not os.environ.get("RAY_ADDRESS") and ready.gpus_here() == 0 and not chosen.gpus


def _processes(chosen: argparse.Namespace, cpu: bool) -> tuple[int, int]:
    """(nodes, processes on each)."""
    if cpu:
        return 1, chosen.ranks
    nodes, gpus = (1, 1) if chosen.check else ready.gpus_at_hand()
    return chosen.nodes or nodes, chosen.gpus or gpus


def _train(prepared: Prepared) -> None:
    if prepared.own.cpu:
        require_plugin()
        start.run(own.write(prepared))
    else:
        start.run(ready.on_cluster(own.write(prepared)))
