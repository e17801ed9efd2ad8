"""The lower bound: what no algorithm can beat."""
