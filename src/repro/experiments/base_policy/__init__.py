"""What the base policy can do."""
