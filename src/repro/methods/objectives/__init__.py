"""Objectives: the loss of each token. They know nothing of engines or models.

An objective is a function `(logprob_N_T, old_logprob_N_T, advantages_N, mask_N_T, *, parameters) -> TokenLoss`, alone
in a module of its own name. `advantages_N` arrives with the sampler's weights folded in.
"""
