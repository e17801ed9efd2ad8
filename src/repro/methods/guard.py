"""Calls of an arm's functions, whoever wrote them: what goes wrong is one sentence that names the arm, the step, the
function and the cure. A function that uses global random numbers does no harm: they are seeded from its generator, and
put back afterwards.
"""

import random
import sys
import traceback
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from repro.errors import Refused, brief, cell
from repro.methods.rollouts import NoSignal

_NUMPYS = np.random.MT19937()  # numpy's global generator during a call


class MethodError(Refused, RuntimeError):
    """`said`: what a function of the arm did wrong, and the cure; `where`: the arm and the step, "" if unknown."""

    def __init__(self, said: str, where: str = ""):
        super().__init__(said, where)
        self.said, self.where = said, where

    def __str__(self) -> str:
        return f"{self.where}: {self.said}" if self.where else self.said


def name_of(function: Callable) -> str:
    """The function's name, without what is bound to it."""
    return str(getattr(getattr(function, "func", function), "__name__", type(function).__name__))


def call(part: str, function: Callable, *arguments: Any, rng: np.random.Generator | int = 0, name: str = "") -> Any:
    """function(*arguments), its arrays read-only; MethodError if it fails. NoSignal passes. `rng`: the
    generator from whose state the global ones are seeded, or their seed."""
    name = name or name_of(function)
    arguments = tuple(_read_only(argument) for argument in arguments)
    try:
        with _own_random_numbers(rng):
            return function(*arguments)
    except (NoSignal, MethodError):
        raise
    except (Exception, SystemExit) as error:  # an exit would end the run, with status 0 perhaps, without a word
        raise MethodError(f"{part} {name}: {_told(error)}") from error


def _read_only(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def _told(error: BaseException) -> str:
    try:
        said = " ".join(str(error).split())
    except Exception:
        said = "it has no text"
    said = said if len(said) <= 240 else f"{said[:239]}…"
    place = traceback.extract_tb(error.__traceback__)[-1]
    if "read-only" in said:
        said += ": it must not write to what it is given; copy the array first"
    return f"{type(error).__name__}: {said} (in {place.name}, {_short(place.filename)}:{place.lineno})"


def _short(path: str) -> str:
    """The cell of a notebook; else the end of a path, enough to find the file."""
    return cell(path) or "/".join(path.replace("\\", "/").split("/")[-3:])


@contextmanager
def _own_random_numbers(rng: np.random.Generator | int) -> Iterator[None]:
    """The global generators of random, numpy and torch, seeded from `rng`, which draws nothing, and put back. A plan is
    called once a group, so this takes 20 µs: numpy's generator is exchanged, since copying its state takes 80."""
    torch = sys.modules.get("torch")
    before = random.getstate(), np.random.get_bit_generator(), torch and torch.get_rng_state()
    seed = rng if isinstance(rng, int) else zlib.crc32(repr(rng.bit_generator.state).encode())
    random.seed(seed)
    np.random.set_bit_generator(_NUMPYS)
    np.random.seed(seed)
    if torch:
        torch.default_generator.manual_seed(seed)  # the CPU's alone
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_bit_generator(before[1])
        if torch:
            torch.set_rng_state(before[2])


def is_whole(value: Any) -> bool:
    """Whether it is a whole number of Python's or numpy's, and no truth value."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def array_of(part: str, function: Callable, value: Any, shape: tuple[int, ...], *, what: str = "") -> np.ndarray:
    """`value` as an array of this shape; MethodError if it is none, or holds a NaN or an infinity."""
    what = what or f"{shape[0]} numbers, an array"
    try:
        array = np.asarray(value)
        fits = array.shape == shape and array.dtype.kind in "biuf"
    except Exception:
        fits = False
    if not fits:
        raise MethodError(f"{part} {name_of(function)} returned {brief(value)}; it should return {what}")
    if not np.isfinite(array).all():
        where = int(np.flatnonzero(~np.isfinite(array))[0])
        raise MethodError(
            f"{part} {name_of(function)} returned {array[where]} at place {where}; every entry must be a finite number"
        )
    return array


def token_loss(function: Callable, *tensors: Any) -> Any:
    """function(logprob_N_T, old_logprob_N_T, advantages_N, mask_N_T), an objective's TokenLoss; MethodError if it
    fails, or returns anything but a finite loss and whether it is clipped, for each token."""
    found = call("objective", function, *tensors)
    try:
        loss_N_T, clipped_N_T = found
        fits = tuple(loss_N_T.shape) == tuple(clipped_N_T.shape) == tuple(tensors[0].shape)
        finite = fits and bool((abs(loss_N_T) < np.inf).all())
    except Exception:
        fits = finite = False
    name = f"objective {name_of(function)}"
    if not fits:
        raise MethodError(
            f"{name} returned {brief(found)}; it should return TokenLoss(loss_N_T, clipped_N_T), tensors with an entry "
            "for each token"
        )
    if not finite:
        raise MethodError(f"{name} returned a loss with a NaN or an infinity; it should be finite for each token")
    return found
