"""Cost of each arm at each paper scale, before a GPU is rented: tokens, FLOPs, memory, GPU-hours.

Nothing is trained. Batches are drawn with the success rates and lengths measured in the embedded study, stretched to
the scale's lengths; the arm's plan, filter, advantage and samplers choose from them; the ledger counts the cost by the
same formulas as in training; a model of the hardware turns it into hours. Every assumption is in section `planner` of
params.yaml.
"""
