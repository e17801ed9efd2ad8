"""Rewards: how the verifier's verdict is presented to training.

A reward is a function `(rewards_N, rng, *, parameters) -> rewards_N` in a module of the same name. Evaluation always
uses the verifier's reward.
"""
