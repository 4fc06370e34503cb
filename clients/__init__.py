"""Real agents, end to end through a real `refold serve`: `make clients` (docs/benchmarks.md)."""
