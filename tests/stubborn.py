"""Samplers that escape the time limit of a call, for the tests of what ends them."""

import signal

from repro.methods import guard, overdue


def hurry() -> None:
    """Limits of fractions of a second, in the process that calls."""
    guard.SECONDS, overdue.GRACE, overdue.PAUSE = 0.2, 0.2, 0.05


def deaf(rollouts, progress, rng):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


def unsignalled(rollouts, progress, rng):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    while True:
        pass
