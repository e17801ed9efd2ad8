"""Methods compared for the same cost, over base policies and seeds."""
