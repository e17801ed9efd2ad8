"""Filters: which groups to keep. The engine refills the batch with new groups until it is full; they are charged too.

A filter is a function `(rewards_N, group_N, *, parameters) -> keep_Q` (bool, groups in sorted order) in a module of the
same name.
"""
