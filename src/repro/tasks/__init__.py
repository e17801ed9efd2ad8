"""Queries with verifiable answers, the demonstrations a base policy is pre-trained on, and its tokenizer."""
