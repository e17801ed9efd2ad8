"""What a group of G rollouts teaches on a query that is solved with probability p (sGPO): exact sums over the binomial.

S ~ Bin(G, p) rollouts of a group succeed. With rewards 0 and 1 normalised within the group, a success has advantage
√((G−S)/S) and a failure −√(S/(G−S)); a group whose rewards are all equal has none. sGPO sets G = ⌈1/p⌉, "extracting
the most advantage per generated rollout" (abstract; no derivation is public). Whether it does depends on what is
counted, so each reading is a criterion here. The derivations are ours, each in its docstring.

p is a scalar or an array of any shape; G one whole number; values have p's shape. ValueError where p is no probability
or G no whole number of rollouts. Array names: P success probabilities, G group sizes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from repro.methods.group_sizes.rule import SMALLEST, Array, binomial, probabilities, rollouts


def informative(p: ArrayLike, size: int) -> Array:
    """I(p, G) = 1 − p^G − (1−p)^G, the probability that the group's rewards differ: without that, no gradient.

    Rises with G by p^G (1−p) + (1−p)^G p, which is p(1−p) both from 2 to 3 and, per rollout, from nothing to 2, and
    falls from there on: I is concave over G = 0, 2, 3, ...
    """
    p, size = probabilities(p), rollouts(size)
    if size < SMALLEST:
        return np.zeros_like(p)
    with np.errstate(divide="ignore"):  # p = 1: log(0), and the group is silent
        return -np.expm1(size * np.log1p(-p)) - p**size


def mean_advantage(p: ArrayLike, size: int) -> Array:
    """E of the mean |A| over the group, (2/G) E√(S(G−S)): both halves of a group have the same sum of |A|.

    Rises with G for every p in (0, 1), to 2√(p(1−p)): S/G is a reverse martingale in G (a smaller group is a larger
    one with rollouts left out), and √(x(1−x)) is concave.
    """
    size = rollouts(size)
    success_S = np.arange(size + 1)
    return binomial(p, size) @ (2 * np.sqrt(success_S * (size - success_S)) / max(size, 1))


def best_advantage(p: ArrayLike, size: int) -> Array:
    """E of the group's greatest advantage, E[√((G−S)/S); 0 < S < G]: that of its successes."""
    size = rollouts(size)
    success_S = np.arange(1, max(size, 1))
    return binomial(p, size)[..., 1 : max(size, 1)] @ np.sqrt((size - success_S) / success_S)


def one_success(p: ArrayLike, size: int) -> Array:
    """P(S = 1) = G p (1−p)^(G−1). Rises from G to G+1 exactly where G ≤ 1/p − 1: greatest at G = ⌊1/p⌋."""
    p, size = probabilities(p), rollouts(size)
    return size * p * (1 - p) ** max(size - 1, 0)


def net_of_price(p: ArrayLike, size: int, *, price: float) -> Array:
    """I(p, G) − λG: what a budget of rollouts leaves of a group, λ its price in informative groups per rollout.

    Where p is small a further rollout brings about p e^(−pG), so the best G is `priced_size`.
    """
    return informative(p, size) - price * size


def priced_size(p: ArrayLike, price: float) -> Array:
    """ln(p/λ)/p, the best G at price λ for small p (0 where p ≤ λ); a real number of rollouts.

    Over p it is greatest at p = eλ, where it equals 1/p: above that p the rule asks for too few rollouts, below it for
    too many, and from p = λ down for rollouts that never pay.
    """
    p = probabilities(p)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > price, np.log(p / price) / p, 0.0)


@dataclass(frozen=True)
class Criterion:
    """A reading of what a group size should make greatest: `value(p, G)`, and what `title` calls it."""

    title: str
    value: Callable[[ArrayLike, int], Array]


def criteria(price: float) -> dict[str, Criterion]:
    """The readings, by name; `price` is that of the last one, in informative groups per rollout."""
    return {
        "mean_advantage": Criterion("mean |A| per rollout", mean_advantage),
        "informative": Criterion("informative groups per rollout", lambda p, size: informative(p, size) / size),
        "best_advantage": Criterion("greatest advantage per rollout", lambda p, size: best_advantage(p, size) / size),
        "one_success": Criterion("chance of exactly one success", one_success),
        "net_of_price": Criterion("informative groups at a price", partial(net_of_price, price=price)),
    }


def over_sizes(value: Callable[[ArrayLike, int], Array], p_P: ArrayLike, sizes_G: Sequence[int]) -> Array:
    """values_P_G: a criterion for each p and each group size."""
    return np.stack([value(p_P, int(size)) for size in sizes_G], axis=-1)
