"""How well a cheap proxy stands in for the gradient norm of a rollout (Cost-Aware Learning §5.2, Fig. 3, 9, 10)."""
