"""Rewards: how the verifier's verdict is presented to training.

A reward is a function `(rewards_N, rng, *, parameters) -> rewards_N` in a module of the same name, or `(rewards_N, rng,
lengths, *, parameters)` if it goes by the length of responses (`repro.methods.lengths.Lengths`). Evaluation always uses
the verifier's reward.
"""
