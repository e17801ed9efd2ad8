"""Conformance: whether a sampler, filter, memory, advantage, objective, plan or refill of anybody's keeps the contract.

`python -m repro.conformance [ARM | MODULE:FUNCTION --part filters]` examines the functions of every arm, of one, or any
that Python finds (docs/conformance.md). Equal rewards are exactly equal, whatever their floating-point deviation.
"""

import argparse
import pickle
import pkgutil
import random
from collections.abc import Callable, Collection
from functools import partial
from inspect import signature
from itertools import islice

import numpy as np
import pandas as pd
import torch

from repro import arms
from repro.errors import Refused, brief, command
from repro.methods.advantages.group_normalised import group_normalised
from repro.methods.lengths import Lengths
from repro.methods.plans import PlanStream, Queries
from repro.methods.rollouts import NoSignal, Rollouts
from repro.settings import load
from repro.stats.tables import markdown

STATED = {  # what a function may state of itself, and a fault where it is not so; with those of ours that do
    "unbiased": ("length_only", "random_subset"),  # the mean of w_m A_m e_m is that of A_i e_i, e_i a unit vector
    "direction": ("cost_aware", "surprise_cost_aware", "variance_optimal"),  # up to a factor common to all rollouts
    "zero-variance": ("zero_variance", "snr", "informative"),  # leaves out the groups of equal rewards
    "anew": ("pods",),  # computes advantages anew
    "drawn": ("continuation",),  # goes by the order in which rollouts were drawn
}
GROUPS = [[0.9, 0.2, 0.0, 0.6, 0.1, 1.0, 0.3], [0.1] * 7, [0.8, 0.35, 0.15, 0.55, 0.7], [0.5], [0.05, 0.95, 0.4]]
MIXED_Q = np.array([min(group) < max(group) for group in GROUPS])
N, DRAWS, WIDEST = 23, 2000, 5.0  # rollouts; selections that measure a bias, and the standard errors that are none
rng, States = np.random.default_rng, Collection[str]
ORDER_N = rng(3).permutation(N)
GROUP_N, REWARDS_N = np.repeat(range(len(GROUPS)), [*map(len, GROUPS)])[ORDER_N], np.concatenate(GROUPS)[ORDER_N]
GROUP_N.flags.writeable = REWARDS_N.flags.writeable = False


def require(holds: object, said: str) -> str:
    """The word `holds`; Refused if it does not."""
    if not holds:
        raise Refused(said)
    return "holds"


def examine(part: str, function: Callable, states: States = ()) -> dict[str, str]:
    """{check: what was measured, or `FAULT: ` and why} of a function; an exception is a fault too.

    >>> examine("filters", lambda rewards_N, group_N: rewards_N.reshape(-1, 8).std(1) > 0)["zero variance"]
    "FAULT: ValueError('cannot reshape array of size 23 into shape (8)')"
    """
    found = {}
    for name, check in CHECKS.get(part, {}).items():
        try:
            found[name] = check(function, states)
        except Exception as error:
            found[name] = f"FAULT: {error if isinstance(error, Refused) else repr(error)}"
    return found


def batch() -> Rollouts:
    """GROUPS with group-normalised advantages, lengths of 1 to N tokens, and every array measured."""
    tokens_N = rng(4).permutation(N) + 1
    mask_N_T = np.arange(N) < tokens_N[:, None]
    measured = {"entropy_N_T": rng(5).random((N, N)) * mask_N_T, "logprob_N_T": -rng(6).random((N, N)) * mask_N_T}
    lengths = {"prompt_tokens_N": 5 + GROUP_N, "response_tokens_N": tokens_N, **measured}
    advantages_N = group_normalised(REWARDS_N, GROUP_N)
    return Rollouts.from_batch(group_N=GROUP_N, rewards_N=REWARDS_N, advantages_N=advantages_N, **lengths)


def selected(sampler: Callable, draw: np.random.Generator, rollouts: Rollouts | None = None) -> Rollouts | None:
    """What it selects halfway through training; None without a signal."""
    try:
        return sampler((rollouts or batch()).frozen(), 0.5, draw)
    except NoSignal:
        return None


def advantages(advantage: Callable, rewards_N: np.ndarray, group_N: np.ndarray) -> np.ndarray:
    """advantages_N of responses of one length."""
    lengths = Lengths(np.full(len(rewards_N), 9), np.zeros(len(rewards_N), bool), 20)
    return np.asarray(advantage(rewards_N, group_N, *[lengths] * ("lengths" in signature(advantage).parameters)))


def loss(objective: Callable, weight: float = 1.0) -> np.ndarray:
    """loss_N_T at ratios beyond any clip, for advantages `weight` times 2, −1/2 and 0; the last token off the mask."""
    old_N_T, mask_N_T = torch.full((3, 13), -4.0).double(), torch.arange(13) < torch.full((3, 1), 12)
    advantages_N = weight * torch.tensor([2.0, -0.5, 0.0]).double()
    return (objective(old_N_T + torch.linspace(-3, 3, 13), old_N_T, advantages_N, mask_N_T)[0] * mask_N_T).numpy()


def planned(plan: Callable, draw: np.random.Generator) -> list:
    """The groups of a step; those after it; and, of a plan that learns, those of a copy stored after the step."""
    made = plan(Queries(np.full(256, 8), np.arange(256) % 9, np.full(256, 8)), 128, draw)
    stream = PlanStream(iter(made), getattr(made, "observe", None), getattr(made, "more", None))
    step = stream.fill_step(128)
    if not hasattr(made, "observe"):
        return [step, stream.fill_step(128)]
    arms.tell(stream, step)
    return [step, *(list(islice(each, 99)) for each in (pickle.loads(pickle.dumps(made)), made))]


CALLS: dict[str, Callable] = {
    "plans": planned,
    "filters": lambda filter, draw: np.asarray(filter(REWARDS_N, GROUP_N)),
    "memories": lambda memory, draw: memory(REWARDS_N, GROUP_N, np.zeros(len(GROUPS), int), draw),
    "advantages": lambda advantage, draw: advantages(advantage, REWARDS_N, GROUP_N),
    "samplers": selected,
    "objectives": lambda objective, draw: loss(objective),
}


def repeats(part: str, function: Callable, states: States) -> str:
    """The same arguments and generator give the same again, and global generators are neither read nor moved."""
    found: list[bytes] = []
    for seed in (1, 2):
        for seeding in (random.seed, np.random.seed, torch.manual_seed):
            seeding(seed)
        before = random.getstate(), pickle.dumps(np.random.get_state()), torch.get_rng_state().tolist()
        found.append(pickle.dumps(CALLS[part](function, rng(0))))
        after = random.getstate(), pickle.dumps(np.random.get_state()), torch.get_rng_state().tolist()
        require(before == after, "it moves a global generator: draw from `rng`, and seed nothing")
    return require(found[0] == found[1], "it gives something else the second time: draw from `rng`, and keep nothing")


def resumes(plan: Callable, states: States) -> str:
    """A plan that learns goes on the same after it was stored and loaded. Others have nothing to store."""
    _, *rest = planned(plan, rng(0))
    return require(len(rest) == 1 or rest[0] == rest[1], "once loaded it goes on otherwise: keep its state in itself")


def rows(sampler: Callable, states: States) -> str:
    """Every array of a selected row is that of its rollout, and weights that come in multiply."""
    given, chosen, weights_N = batch(), selected(sampler, rng(0)), np.linspace(0.5, 2, N)
    require(chosen is not None, "it finds no signal in a batch that has one")
    apart = {"weights_N", "row_N", "response_mask_N_T", "minibatches", *["advantages_N"] * ("anew" in states)}
    taken = {
        name: (values[chosen.row_N], vars(chosen)[name]) for name, values in vars(given).items() if name not in apart
    }
    mixed = [name for name, (there, here) in taken.items() if (there != here).any()]
    require(not mixed, f"{', '.join(mixed)} are those of other rollouts: select whole rows, by `take`")
    weighed = selected(sampler, rng(0), given.take(np.arange(N), weights_N))
    same = weighed is not None and np.allclose(weighed.weights_N, chosen.weights_N * weights_N[chosen.row_N])
    return require(same, "the weights that come in are lost: multiply them, as `take` does")


def order(sampler: Callable, states: States) -> str:
    """Without a draw, the order of the rollouts does not matter to those with an advantage."""
    draw, found = rng(0), []
    for given in (batch(), batch().take(rng(7).permutation(N))):
        chosen = selected(sampler, draw, given) or given
        counts_M = chosen.weights_N * chosen.response_mask_N_T.sum(1) * (chosen.advantages_N != 0)
        found.append(np.bincount(chosen.row_N, counts_M, N))
    draws = draw.bit_generator.state != rng(0).bit_generator.state or "drawn" in states
    return "draws" if draws else require(np.allclose(*found), "it goes by the order of rollouts: go by group_N")


def expectation(sampler: Callable, states: States) -> str:
    """Of the mean weighted gradient: whether it is that of the batch, has its direction, or is biased."""
    whole, draw, gradient_R_N = batch(), rng(1), np.zeros((DRAWS, N))
    for place in range(DRAWS):
        if (chosen := selected(sampler, draw, whole)) is not None:
            gradient_R_N[place] = np.bincount(chosen.row_N, chosen.weights_N * chosen.advantages_N, N) / len(chosen)
            if (chosen.response_mask_N_T != whole.response_mask_N_T[chosen.row_N]).any():
                return "of tokens"
    target_N, errors = whole.advantages_N / N, WIDEST / DRAWS**0.5
    factor_R = gradient_R_N @ target_N / (target_N @ target_N)
    off_R_N = gradient_R_N - factor_R.mean() * target_N
    straight = (np.abs(off_R_N.mean(0)) <= errors * off_R_N.std(0) + 1e-9).all()
    full = straight and abs(factor_R.mean() - 1) <= errors * factor_R.std() + 1e-9
    measured = "unbiased" if full else "direction" if straight else "biased"
    holds = (full or "unbiased" not in states) and (straight or "direction" not in states)
    return measured if holds else require(False, f"it is {measured}: weigh each rollout by 1 / its probability")


def silent(part: str, function: Callable, states: States) -> str:
    """Whether groups of equal rewards are left out, or not held; and by a filter or memory no others."""
    found = CALLS[part](function, rng(0))
    if part == "samplers":
        found = np.isin(np.arange(len(GROUPS)), [] if found is None else found.group_N)
    keep_Q = np.asarray(found.hold_Q if part == "memories" else found)
    require(keep_Q.shape == MIXED_Q.shape, f"it returns {keep_Q.shape} for {len(GROUPS)} groups: one entry for each")
    loud, lost = ([GROUPS[q] for q in np.flatnonzero(which_Q)] for which_Q in (keep_Q & ~MIXED_Q, MIXED_Q & ~keep_Q))
    if "zero-variance" not in states:
        return "kept" if loud else "left out"
    require(not loud, f"it keeps groups of rewards {brief(loud)}: compare the largest reward with the smallest")
    return require(part == "samplers" or not lost, f"it loses groups with a signal, {brief(lost)}: decide by group")


def rounding(advantage: Callable, states: States) -> str:
    """Exactly 0 where all rewards are equal, and for rewards of 0 and c < 1 no larger than for 0 and 1."""
    silent_N = advantages(advantage, REWARDS_N, GROUP_N)[~MIXED_Q[GROUP_N]]
    require(not silent_N.any(), f"it is {abs(silent_N).max():.1g} where rewards are equal: compare exactly")
    one, *rest = (np.ptp(advantages(advantage, np.r_[0, [c] * 7], np.zeros(8, int))) for c in (1, 0.95, 0.7))
    return require(max(rest) < 1.01 * one, f"rounding makes it {max(rest) / one:.3g} times as large: compare exactly")


def clip(objective: Callable, states: States) -> str:
    """A positive weight of the advantage multiplies the loss, whatever is clipped; no advantage, no loss."""
    once_N_T, thrice_N_T = loss(objective), loss(objective, weight=3.0)
    same = np.allclose(thrice_N_T, 3 * once_N_T) and not once_N_T[2].any()
    return require(same, "a weight does not commute with its clip: clip the ratio alone")


def charged(loop: Callable, states: States) -> str:
    """`loop(draw, groups)` returns (the kept groups' rewards, the rollouts it charges); draw(n) draws n more groups."""
    drawn: list[list[float]] = []

    def draw(count: int) -> list[list[float]]:
        drawn.extend(GROUPS[place % len(GROUPS)] for place in range(len(drawn), len(drawn) + count))
        return [list(group) for group in drawn[len(drawn) - count :]]

    groups, rollouts = loop(draw, 6)
    first, due = [group for group in drawn if len({*group}) > 1][:6], sum(map(len, drawn))
    require([list(group) for group in groups] == first, "it keeps other groups than the first with a signal, as drawn")
    return require(rollouts == due, f"it charges {rollouts} of {due} rollouts: what is dropped was generated too")


CHECKS = {"refill": {"charged": charged}} | {part: {"repeats": partial(repeats, part)} for part in CALLS}
CHECKS["plans"]["resumes"], CHECKS["objectives"]["weights, clip"] = resumes, clip
CHECKS["advantages"]["zero variance"] = rounding
CHECKS["samplers"] |= {"whole rows": rows, "order": order, "expectation": expectation}
for kind in ("filters", "memories", "samplers"):
    CHECKS[kind]["zero variance"] = partial(silent, kind)


@command
def main(arguments: list[str] | None = None) -> int:
    """Prints a table for each part, and its faults. Exit status 0, or 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m repro.conformance", description="Functions held to the contract.")
    parser.add_argument("of", nargs="?", metavar="ARM | MODULE:FUNCTION", help="all arms if left out")
    parser.add_argument("--part", choices=CHECKS, default="samplers", help="of MODULE:FUNCTION; default: %(default)s")
    parser.add_argument("--states", nargs="+", choices=STATED, default=[], help="what MODULE:FUNCTION states")
    chosen = parser.parse_args(arguments)
    functions, settings = {}, load()
    if ":" in (chosen.of or ""):
        own = arms.run_file(chosen.of, lambda: pkgutil.resolve_name(chosen.of))
        functions[chosen.part, chosen.of] = own, chosen.states
    else:
        for arm in [chosen.of] if chosen.of else settings.all_arms:
            for part, name, own in settings.arm(arm).calls:
                states = [word for word, names in STATED.items() if name in names and own.get("recentre") != "mean"]
                shown = ", ".join([name, *(f"{key}={value}" for key, value in own.items())])
                functions[part, shown] = arms.bind(settings.where(arm), part, name, own), states
    found = pd.DataFrame([(*key, *each) for key, own in functions.items() for each in examine(key[0], *own).items()])
    for part, of_it in found.assign(word=found[3].str.partition(":")[0]).groupby(0, sort=False):
        print(part, markdown(of_it.pivot(index=1, columns=2, values="word").reset_index(names="function")), sep="\n\n")
    faults = [f"{part}, {name}, {check}: {said}" for part, name, check, said in found.to_numpy() if said[:5] == "FAULT"]
    print("\n".join(faults) or "no fault")
    return int(len(faults) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
