"""The papers' methods on plain arrays: query plans, rewards, filters, advantages, samplers and objectives."""
