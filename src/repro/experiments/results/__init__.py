"""The tables and figures of the whole study."""
