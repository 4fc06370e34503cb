"""Refold inside agent frameworks. Each adapter says which extra it needs (docs/frameworks.md)."""
