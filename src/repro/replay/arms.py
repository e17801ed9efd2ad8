"""Which arms can choose from rollouts that are there, and why the others cannot."""

import json
from typing import NamedTuple

import numpy as np

from repro import arms
from repro.methods.guard import MethodError
from repro.methods.method import Method
from repro.methods.rollouts import NotMeasured, Rollouts
from repro.settings import Arm, Settings


class Arms(NamedTuple):
    """`methods`: of arms that choose differently. `scored`: of those in `Settings.arms` that read entropies or
    log-probabilities, which takes the model. `alike`: {arm: titles of those that choose as it does}. `left_out`: {why:
    titles of those that cannot be replayed}, an id of words.yaml."""

    methods: dict[str, Method]
    scored: dict[str, Method]
    alike: dict[str, list[str]]
    left_out: dict[str, list[str]]


def replayable(settings: Settings, group_size: int) -> Arms:
    """The arms of `settings` on rollouts in groups of `group_size`, the baseline first."""
    found, known = Arms({}, {}, {}, {}), {}
    for name in sorted(settings.all_arms, key=lambda name: name != settings.baseline):
        arm = settings.arm(name)
        method = arms.build(name, arm)
        choice = json.dumps([arm.reward, arm.filter, arm.advantage, arm.samplers], default=repr)
        if why := _why_not(arm, group_size) or _unmeasured(method):
            found.left_out.setdefault(why, []).append(arm.title)
            if why == "unmeasured" and name in settings.arms:
                found.scored[name] = method
        elif choice in known:
            found.alike[known[choice]].append(arm.title)
        else:
            found.methods[name], found.alike[name], known[choice] = method, [], name
    return found


def _why_not(arm: Arm, group_size: int) -> str:
    """What of the arm cannot be replayed; "" if everything can."""
    plan, given = arm.plan
    if arm.profile or plan != "uniform" or arm.memory:
        return "profile" if arm.profile else "plan"
    if given.get("group_size", group_size) != group_size:
        return "size"
    if any(str(name).endswith("_tokens") for name, _ in arm.samplers):
        return "tokens"
    return "coins" if arm.reward[0] == "coin_flip" else ""


def _unmeasured(method: Method) -> str:
    """Whether its samplers read what is not read from files, tried on eight rollouts; "" if not."""
    rewards_N, lengths_N = np.tile([1.0, 0.0], 4), np.arange(3, 11)
    of = {"group_N": np.arange(8) // 4, "rewards_N": rewards_N, "advantages_N": 2 * rewards_N - 1}
    batch = Rollouts.from_batch(**of, prompt_tokens_N=lengths_N, response_tokens_N=lengths_N)
    try:
        method.select(0, batch, 0.5, np.random.default_rng(0))
    except MethodError as error:
        cause: BaseException | None = error
        while isinstance(cause, MethodError):
            cause = cause.__cause__
        if not isinstance(cause, NotMeasured):
            raise
        return "unmeasured"
    return ""
