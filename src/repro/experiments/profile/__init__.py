"""What the base policy can already do on the training queries."""
