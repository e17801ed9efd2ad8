"""What each arm would cost at each paper scale, before a GPU is rented: tokens, FLOPs, memory, GPU-hours.

Nothing is trained. Batches are drawn whose success rates and lengths are those that the embedded study has measured,
stretched to the scale's lengths; the arm's own plan, filter, advantage and samplers choose from them; the ledger counts
what that takes, by the same formulas as in training; and a model of the hardware turns it into hours. Every assumption
stands in section `planner` of params.yaml.
"""

from repro.experiments.planner.plan import predict

__all__ = ["predict"]
