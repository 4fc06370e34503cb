"""Runs the blocks of docs/corpus.md on the engines themselves: `make engines`."""
