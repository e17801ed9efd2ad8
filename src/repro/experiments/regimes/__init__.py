"""The same arms on other mixes of queries."""
