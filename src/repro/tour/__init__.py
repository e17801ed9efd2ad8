"""`make tour`: a sampler of one's own beside GRPO and ZVF, two seeds each, in about a minute on two cores."""
