"""How much of a gain did the base policy already have, at lower temperatures or with more samples?"""
