"""What the base policy knows of the training queries."""
