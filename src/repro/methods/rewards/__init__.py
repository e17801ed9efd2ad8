"""Rewards: what the training sees of the verifier's verdict.

A reward is a function `(rewards_N, rng, *, parameters) -> rewards_N`, alone in a module of its own name. Evaluation
always uses the verifier's own.
"""
