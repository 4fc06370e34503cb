"""Adapters for agent frameworks. Each names the extra that it needs (docs/frameworks.md)."""
