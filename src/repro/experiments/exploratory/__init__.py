"""Objectives, variants and compositions that no question was declared about: what two base policies say of them."""
