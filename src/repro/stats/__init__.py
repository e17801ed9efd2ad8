"""Statistics over runs: loading, intervals, multiplicity, cost."""
