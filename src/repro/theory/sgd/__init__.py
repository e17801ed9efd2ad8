"""Cost-Aware SGD: the theorem, the least-squares problem, the synthetic validation."""
