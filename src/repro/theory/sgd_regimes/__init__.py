"""Cost-Aware SGD further: rates, correlation of costs and norms, non-convex problems."""
