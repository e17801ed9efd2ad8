"""The embedded engine: rollouts and updates in one process with torch and transformers, on a CPU or one GPU."""
