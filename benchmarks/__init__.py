"""Speed, memory and what is kept: `python -m benchmarks`."""
