"""A real language model's profile."""
