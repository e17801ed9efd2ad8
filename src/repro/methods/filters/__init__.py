"""Filters: which groups count. The engine refills the batch with further groups until it is full, and pays for them.

A filter is a function `(rewards_N, group_N, *, parameters) -> keep_Q` (bool, groups in sorted order), alone in a module
of its own name.
"""
