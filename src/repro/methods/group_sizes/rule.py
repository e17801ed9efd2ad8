"""sGPO's group size, the inverse of the success rate, and the binomial of a group's successes.

p is a scalar or an array of any shape, G a single integer; results have p's shape. ValueError if p is not a probability
or G not a whole number of rollouts.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
SMALLEST = 2  # the smallest group that can have an advantage


def rule_size(p: ArrayLike, smallest: int = SMALLEST, largest: int | None = None) -> NDArray[np.int64]:
    """clip(⌈1/p⌉, smallest, largest), sGPO's group size; rollouts. p = 0 gives `largest`, which must then be set.

    >>> rule_size([1.0, 0.5, 0.125, 0.0], largest=32)
    array([ 2,  2,  8, 32])
    """
    p = probabilities(p)
    if largest is None and (p == 0).any():
        raise ValueError("p = 0 has no inverse: give the largest group size")
    with np.errstate(divide="ignore"):
        inverse = np.ceil(1.0 / p - 1e-9)  # 1/(1/49) is a rounding error above 49
    return np.clip(inverse, smallest, np.inf if largest is None else largest).astype(np.int64)


def probabilities(p: ArrayLike) -> Array:
    """`p` as floats; ValueError naming the first one outside [0, 1]."""
    p = np.asarray(p, dtype=np.float64)
    if (bad := ~((p >= 0) & (p <= 1))).any():
        raise ValueError(f"p = {p[bad].flat[0]}: a success probability lies in [0, 1]")
    return p


def rollouts(size: int) -> int:
    """`size` as an int; ValueError if it is negative or not whole."""
    if size < 0 or size != int(size):
        raise ValueError(f"G = {size}: a group size is a whole number of rollouts, at least 0")
    return int(size)


def binomial(p: ArrayLike, size: int) -> Array:
    """P(S = s) for s = 0 ... G; shape p.shape + (G + 1,)."""
    from scipy.special import gammaln, xlog1py, xlogy  # late: sGPO's plan needs none of it

    p, success_S = probabilities(p)[..., None], np.arange(size + 1)
    ways_S = gammaln(size + 1) - gammaln(success_S + 1) - gammaln(size - success_S + 1)
    return np.exp(ways_S + xlogy(success_S, p) + xlog1py(size - success_S, -p))
