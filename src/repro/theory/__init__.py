"""The theorems of the three papers: closed forms, and simulations that check them. Knows nothing of engines."""
