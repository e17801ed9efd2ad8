"""Training that cannot go on."""


class Diverged(ArithmeticError):
    """A gradient that is not finite: the update was not made. Or a policy whose probabilities are none: nothing can be
    sampled from it."""
