"""The embedded engine: generate, verify, weigh, update, evaluate, in one process."""
