"""The proxy gap: what sampling by something else than the norm costs."""
