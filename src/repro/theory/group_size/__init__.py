"""Group size: sGPO's rule, profiles, allocation."""
