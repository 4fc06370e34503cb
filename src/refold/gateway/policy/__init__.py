"""Decisions without side effects: what kind of request this is, what an error says, what pays."""
