"""From an arm to its method: names are resolved to functions, parameters are checked and bound.

A part of an arm is the name of a module in repro.methods, as in params.yaml, or a function, as in a notebook.
Building an arm imports only its own plan, samplers and objective, so that an edit to a sampler affects only the arms
that use it.
"""

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ConfigDict, ValidationError, create_model

from repro.methods import guard
from repro.methods.guard import MethodError
from repro.methods.lengths import Lengths
from repro.methods.method import Method
from repro.methods.plans import PlannedGroup, PlanStream, Queries
from repro.methods.rollouts import Rollouts
from repro.paths import SOURCE
from repro.settings import Arm, Settings, SettingsError, nearest


def build(name: str, arm: Arm) -> Method:
    """The functions of an arm; SettingsError if a name or a parameter is wrong."""
    bound = [(package, bind(arm.defined(name), package, call, parameters)) for package, call, parameters in arm.calls]
    one = {package: function for package, function in bound if package != "samplers"}
    samplers = [function for package, function in bound if package == "samplers"]
    filter = one.get("filters")
    again = arm.profile.again if arm.profile else 0
    return Method(
        one["plans"],
        one["rewards"],
        filter,
        one["advantages"],
        samplers,
        one["objectives"],
        arm.aggregation,
        again,
        name,
        one.get("memories"),
    )


def check(settings: Settings, names: Iterable[str] | None = None) -> None:
    """Build every arm (or those in `names`), start its plan and run its samplers on a small batch, as at the start and
    end of training; SettingsError on the first that fails, before any training."""
    for name in settings.all_arms if names is None else names:
        arm = settings.arm(name)
        method = build(name, arm)
        queries, engine = _some_queries(settings.task.train_queries, arm), settings.engine_of(name)
        if arm.profile and arm.profile.again >= engine.steps:
            raise SettingsError(
                f"{settings.where(name)}.profile.again {arm.profile.again} is not below its "
                f"{engine.steps} steps; lower it"
            )
        try:
            try_plan(method, queries, engine.rollouts_per_step)
            for progress in (0.0, 1.0 - 1.0 / engine.steps):
                try_out(method, progress)
        except MethodError as error:
            raise SettingsError(f"{settings.where(name)}: {error.said}") from error
        except Exception as error:
            kind = "" if isinstance(error, (ValueError, RuntimeError)) else f"{type(error).__name__}: "
            raise SettingsError(f"{settings.where(name)}: {kind}{error}") from error


def _some_queries(count: int, arm: Arm) -> Queries:
    """Queries with every possible success rate, if the arm has a profile."""
    prompt_tokens_Q = np.ones(count, int)
    if arm.profile is None:
        return Queries(prompt_tokens_Q)
    samples = arm.profile.samples
    return Queries(prompt_tokens_Q, np.arange(count) % (samples + 1), np.full(count, samples))


def try_plan(method: Method, queries: Queries, budget: int) -> None:
    """Fill a step of its plan. One that learns is given what the step earned, and fills another, twice, since a run is
    resumed by taking it through the same again."""
    if (first := _two_steps(method, queries, budget)) and first != _two_steps(method, queries, budget):
        raise MethodError(
            f"plan {guard.name_of(method.plan)} yields other groups the second time, after the same observations: draw "
            "all random numbers from `rng`, and keep nothing outside the instance"
        )


def _two_steps(method: Method, queries: Queries, budget: int) -> list:
    """The second step's groups, of a plan that learns."""
    stream = method.made_plan(0, queries, budget, np.random.default_rng(0))
    groups = stream.fill_step(budget)
    if not method.learns:
        return []
    tell(stream, groups)
    return stream.fill_step(budget)


def tell(stream: PlanStream, groups: Sequence[PlannedGroup]) -> None:
    """Tell a plan made-up outcomes of its groups, and ask it for more: of each query another number of successes, none
    and all included."""
    queries_Q = [group.query for group in groups]
    rewards_Q = [(np.arange(group.size) < group.query % (group.size + 1)).astype(float) for group in groups]
    stream.more(queries_Q, rewards_Q, sum(group.later for group in groups))
    for query, rewards_G in zip(queries_Q, rewards_Q, strict=True):
        stream.observe(query, rewards_G, np.full(len(rewards_G), 9))


def try_out(method: Method, progress: float) -> None:
    """Run filter, memory, advantage and samplers on four groups of four: mixed, mixed, all correct, all wrong. Twice,
    since a run can be repeated and resumed only if the same batch and generator give the same."""
    first, second = (_outcome(method, progress) for _ in range(2))
    if first != second:
        raise MethodError(
            "the same batch and generator give another selection the second time: draw all random numbers from `rng`, "
            "and keep nothing from call to call"
        )


def _outcome(method: Method, progress: float) -> list:
    """What the functions of a method make of that batch."""
    rng = np.random.default_rng(0)
    group_N = np.repeat(np.arange(4), 4)
    tokens_N = np.arange(3, 19)
    lengths = Lengths(tokens_N, tokens_N == 18, 18)
    rewards_N = method.rewards(0, np.array([1, 0, 0, 0, 1, 1, 0, 1, *[1] * 4, *[0] * 4], float), rng, lengths)
    if method.filter is not None:
        method.kept_groups(0, rewards_N, group_N)
    found = []
    if method.memory is not None:
        remembered = method.remembered(0, rewards_N, group_N, np.array([0, 1, 2, 0]), rng)
        found = [remembered.train_Q.tolist(), remembered.hold_Q.tolist()]
    mask_N_T = np.arange(tokens_N.max()) < tokens_N[:, None]
    rollouts = Rollouts.from_batch(
        group_N=group_N,
        rewards_N=rewards_N,
        advantages_N=method.advantages(0, rewards_N, group_N, lengths),
        prompt_tokens_N=np.full(16, 5),
        response_tokens_N=tokens_N,
        entropy_N_T=rng.random(mask_N_T.shape) * mask_N_T,
        logprob_N_T=-rng.random(mask_N_T.shape) * mask_N_T,
    )
    chosen = method.select(0, rollouts, progress, rng)
    return found + ([] if chosen is None else [np.asarray(values).tolist() for values in vars(chosen).values()])


def bind(where: str, package: str, part: str | Callable, parameters: dict[str, Any]) -> Callable:
    """`repro.methods.<package>.<name>.<name>`, or the given function, with its parameters checked against its signature
    and bound. `where`: what defines the arm, for errors (`Arm.defined`)."""
    function = _find(where, package, part) if isinstance(part, str) else part
    name = getattr(function, "__name__", type(function).__name__)
    if isinstance(part, partial) and not parameters:
        return part
    try:
        signature = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise SettingsError(f"{where}: {name} cannot be one of its {package}: give a function, or a name") from None
    keywords = {parameter.name: parameter for parameter in signature if parameter.kind is parameter.KEYWORD_ONLY}
    for key in parameters:
        if key not in keywords:
            raise SettingsError(f"{where}: {name} takes no parameter {key!r}{nearest(key, keywords)}")
    fields = {
        key: (Any if p.annotation is p.empty else p.annotation, ... if p.default is p.empty else p.default)
        for key, p in keywords.items()
    }
    schema = create_model(name, __config__=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False), **fields)
    try:
        return partial(function, **dict(schema(**parameters)))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise SettingsError(f"{where}: {name}.{key} is {first['input']!r}: {first['msg'].lower()}") from None


def _find(where: str, package: str, name: str) -> Callable:
    """The function `name` of the module with the same name."""
    if not name.isidentifier() or importlib.util.find_spec(f"repro.methods.{package}.{name}") is None:
        files = (SOURCE / "methods" / package).glob("*.py")
        known = sorted(path.stem for path in files if not path.stem.startswith(("_", "aggregate")))
        copied = ": DVC copied what git tracks, so `git add` its file first" if ".dvc" in SOURCE.parts else ""
        raise SettingsError(
            f"{where}: src/repro/methods/{package} has no module {name!r}{copied or nearest(name, known)}"
        )
    file = f"src/repro/methods/{package}/{name}.py"
    module = run_file(f"{where}: {file}", lambda: importlib.import_module(f"repro.methods.{package}.{name}"))
    function = getattr(module, name, None)
    if not callable(function):
        raise SettingsError(f"{where}: {file} should define a function {name!r}, its own name")
    return function


def run_file(place: str, run: Callable[[], Any]) -> Any:
    """run(), which runs a file of somebody's as it is imported; SettingsError with `place` if it fails."""
    try:
        return guard.call("the file", run, name=place)
    except MethodError as error:
        why = error.said.removeprefix(f"the file {place}: ")
        raise SettingsError(f"{place} cannot be run: {why}; correct it") from error.__cause__


def sampler_in(path: Path) -> Callable:
    """The one public function that the file at `path` defines.

    The file is run but not entered among the imported modules, so worker processes are sent the function itself.
    SettingsError if the file cannot be run, or does not define exactly one.
    """
    if not path.is_file():
        raise SettingsError(
            f"{path} is not a file: give one that defines a sampler, such as notebooks/tutorials/own_sampler.py"
        )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None:
        raise SettingsError(f"{path} is not a Python file: its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    run_file(str(path), lambda: spec.loader.exec_module(module))
    own = inspect.getmembers(module, lambda value: inspect.isfunction(value) and value.__module__ == path.stem)
    public = [function for name, function in own if not name.startswith("_")]
    if len(public) != 1:
        names = ", ".join(function.__name__ for function in public) or "none"
        raise SettingsError(f"{path} defines {names}: it should define one sampler; helpers begin with an underscore")
    return public[0]
