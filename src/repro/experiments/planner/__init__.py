"""What each arm would cost at each paper's scale, predicted before a GPU is rented: tokens, FLOPs, memory, GPU-hours.

Nothing is trained. Batches are simulated with the success rates and response lengths measured in the embedded study,
the lengths stretched to the scale's; the arm's plan, filter, advantage and samplers select from them; the ledger counts
the cost by the formulas used in training; a model of the hardware converts it to hours. All assumptions are in section
`planner` of params.yaml.
"""
