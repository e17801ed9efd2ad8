"""Objectives: the loss of each token, independent of engine and model.

An objective is a function `(logprob_N_T, old_logprob_N_T, advantages_N, mask_N_T, *, parameters) -> TokenLoss` in a
module of the same name. `advantages_N` already includes the sampler's weights.
"""
