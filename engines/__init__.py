"""The blocks of docs/engines.md on the engines themselves: `make engines`."""
