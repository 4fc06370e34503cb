"""The front door: a compactor keeps conversations inside a budget."""
