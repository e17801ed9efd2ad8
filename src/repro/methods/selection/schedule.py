"""Schedules over training."""


def linear(progress: float, start: float, end: float) -> float:
    """(1 − p) · start + p · end (D³S, eq. 9), p = progress, the fraction of training steps done.

    Progress runs from 0 to (steps − 1)/steps, since it is taken before a step: the last step is one increment short of
    `end`. ValueError outside [0, 1].
    """
    if not 0.0 <= progress <= 1.0:
        raise ValueError(f"schedule: progress is {progress}; it is a share of training and lies between 0 and 1")
    return (1.0 - progress) * start + progress * end
