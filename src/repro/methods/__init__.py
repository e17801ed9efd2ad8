"""The papers' methods on plain arrays: query plans, rewards, filters, memories, advantages, samplers and objectives."""
