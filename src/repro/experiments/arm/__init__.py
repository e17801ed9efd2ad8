"""The report of one arm."""
