"""Broken settings: whatever stands in params.yaml, it is refused in one sentence, or every arm builds and makes a step.

A hundred cases by default, other ones each time `make fuzz` makes thousands (REPRO_FUZZ).
"""

import contextlib
import copy
import functools
import os
import signal
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as runs
from hypothesis import strategies as st
from tiny_run import new_trainer, parity, pools, reward_with

from repro import arms
from repro.engine.diverged import Diverged
from repro.engine.measure import measure_profile
from repro.errors import Refused
from repro.paths import PARAMS
from repro.protocol.profile import Profile, Source
from repro.settings import Arm, SettingsError, load, parse
from repro.settings.schema import Engine
from repro.settings.text import read_mapping

CASES = int(os.environ.get("REPRO_FUZZ", "100"))
PATIENCE = 20.0  # seconds of CPU time for a case
MANY = runs(
    max_examples=CASES,
    deadline=None,
    derandomize="REPRO_FUZZ" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)
_stepped: set[tuple] = set()  # the arms that made their step, with the engine's settings
ARMS = ("grpo", "cispo", "cost-aware", "noise-1", "zvf", "d3s", "sgpo", "sgpo-again-1", "grpo-again", "random-subset")
NUMBERS = (0, -1, 1, 2, 7, 2**31, 2**63, 10**30, 0.0, -0.0, 0.5, 1e-300, 1e300)
WORDS = ("", " ", "a b", "../x", "$(x)", "'", "\n", "\0", "é", "x" * 300, "1e-4", "010")
ODD = (
    None,
    True,
    float("inf"),
    float("nan"),
    [],
    {},
    [[]],
    [None],
    {"": None},
    {1: 2},
    {None: 3},
    ["grpo"] * 2,
    [0, 0],
)
ODD += ({"cost_aware": {"beta": float("nan")}}, ["__init__"], b"x", *NUMBERS, *WORDS)
MOST = {"rollouts_per_step": 64, "minibatch": 64, "max_new_tokens": 8, "kl_probe": 8, "refill_rounds": 4}


@functools.cache
def whole() -> dict[str, Any]:
    """params.yaml with some of its arms and scales, since every case checks all that there are."""
    raw = yaml.safe_load(PARAMS.read_text())
    every = {**raw["arms"], **raw.pop("more_arms")}
    raw["arms"] = {name: every[name] for name in ARMS}
    raw["scales"] = {name: raw["scales"][name] for name in ("cpu", "smoke")}
    raw["primaries"] = [name for name in raw["primaries"] if name in ARMS]
    for section in ("fidelity", "drift"):
        raw[section]["arms"] = [name for name in raw[section]["arms"] if name in ARMS]
    return raw


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every entry at any depth."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(entries):
        yield value, key
        yield from places(inner)


def mutated(random: Random) -> dict[str, Any]:
    """The settings with one to three entries replaced, removed, renamed, added, exchanged or scaled."""
    raw = copy.deepcopy(whole())
    for _ in range(random.randint(1, 3)):
        container, key = random.choice(list(places(raw)))
        value, kind = container[key], random.randrange(6)
        if kind == 1:
            del container[key]
        elif kind == 2 and isinstance(container, dict):
            container[random.choice([str(key) + "s", str(key)[:-1], random.choice(WORDS), 3, None])] = container.pop(
                key
            )
        elif kind == 3 and isinstance(container, dict):
            container[random.choice([*WORDS, "engine", "scale", "seed", 3])] = copy.deepcopy(random.choice(ODD))
        elif kind == 4:
            other, name = random.choice(list(places(raw)))
            container[key] = copy.deepcopy(other[name])
        elif kind == 5 and isinstance(value, int | float) and not isinstance(value, bool):
            container[key] = random.choice(
                [-value, value * 10, value * 1000, value / 10, value + 1, value - 1, float(value)]
            )
        else:
            container[key] = copy.deepcopy(random.choice(ODD))
    return raw


def varied(random: Random) -> dict[str, Any]:
    """Settings that are more often accepted: a number of the engine or of an arm scaled, and a part of an arm, whole or
    a parameter of it, taken from any other of params.yaml."""
    raw = copy.deepcopy(whole())
    container, key = random.choice([at for section in ("engine", "arms") for at in places(raw[section])])
    if isinstance(value := container[key], int | float) and not isinstance(value, bool):
        container[key] = random.choice([value * 2, value * 3, value / 2, value + 1, value - 1, 1, 0.5, float(value)])
    part, content = random.choice(donors())
    raw["arms"][random.choice(ARMS)][part] = copy.deepcopy(content)
    return raw


@functools.cache
def donors() -> list[tuple[str, Any]]:
    """(part, content) of every arm of params.yaml, without words."""
    raw = yaml.safe_load(PARAMS.read_text())
    every = [*raw["arms"].values(), *raw["more_arms"].values()]
    return [entry for arm in every for entry in arm.items() if entry[0] not in ("title", "about", "group")]


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """AssertionError after PATIENCE seconds."""

    def late(*_: Any) -> None:
        raise AssertionError(f"not decided after {PATIENCE} s")

    usual = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, usual)


def outcome(settings: Any) -> None:
    """What `settings()` gives is refused in one sentence, or every arm of it builds and makes a step; in time."""
    try:
        with in_time():
            read = settings()
            arms.check(read)
    except SettingsError as error:
        sentence = str(error)
        assert "\n" not in sentence and 10 < len(sentence) < 600, sentence
        return
    for name, arm in read.arms.items():
        with in_time():
            step_once(arm, read.engine_of(name))


def step_once(arm: Arm, engine: Engine) -> None:
    """A step of the untrained policy, at sizes of at most MOST; an arm that differs in words alone from one that made
    its step makes none. It may diverge, at the learning rates that are accepted, and be refused where its sizes are
    cut: a group larger than the batch."""
    parts = arm.model_dump_json(exclude={"title", "about", "group", "engine"})
    values = {name: value for name, value in engine if name not in ("device", "dtype", "workers")}
    sizes = {name: min(values[name], most) for name, most in MOST.items()}
    if (done := (parts, *values.values())) in _stepped:
        return
    _stepped.add(done)
    cut = any(sizes[name] < values[name] for name in ("rollouts_per_step", "minibatch"))
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Diverged, *([Refused] if cut else [])):
        reward_with(patch, parity)
        trainer = new_trainer(arm, profile=profile() if arm.profile else None, **values | sizes)
        trainer.step(0)
        assert len(trainer.log.steps) == 1


@functools.cache
def profile() -> Profile:
    source, trainer = Source("a policy", "queries", 1.0, 8, seed=3), new_trainer()
    return measure_profile(trainer.model, trainer.tokenizer, pools().train, source, samples=4, batch_rollouts=8)


@MANY
@given(st.randoms(use_true_random=False))
def test_mutations_of_the_settings_are_refused_in_a_sentence_or_every_arm_makes_a_step(random):
    outcome(lambda: parse(mutated(random)))


@runs(MANY, max_examples=max(10, CASES // 5))
@given(st.randoms(use_true_random=False))
def test_settings_with_parts_of_other_arms_are_refused_in_a_sentence_or_every_arm_makes_a_step(random):
    outcome(lambda: parse(varied(random)))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (b"", ["params.yaml"]),
        (b"- scale\n", ["params.yaml"]),
        (b"scale: [cpu\nseeds: 3\n", ["not valid YAML", "line 2"]),
        (b"a: 1\na: 2", ["line 2", 'duplicate key "a"']),
        (b"a: !!python/object/apply:os.system [ls]", ["not valid YAML, line 1"]),
        (b"a: 1\n---\nb: 1", ["not valid YAML"]),
        (b"a: " + b"[" * 5000 + b"]" * 5000, ["not valid YAML", "recursion"]),
        (b"a: 1\nb: \xe9", ["line 2", "UTF-8"]),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_is_no_yaml_is_refused_with_its_line(tmp_path, text, parts):
    path = tmp_path / "params.yaml"
    path.write_bytes(text)
    with pytest.raises(SettingsError) as error:
        load(path)
    assert all(part in str(error.value) for part in parts) and "\n" not in str(error.value), str(error.value)


def test_values_are_those_of_yaml_1_2_as_dvc_reads_them(tmp_path):
    path = tmp_path / "values.yaml"
    path.write_text("[yes, 010, 1:30, 1e-4, 0o10, true, ~, .inf]")
    assert read_mapping(path) == ["yes", 10, "1:30", 1e-4, 8, True, None, float("inf")]


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for path in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(SettingsError, match=f"{path} cannot be read: "):
            load(path)
