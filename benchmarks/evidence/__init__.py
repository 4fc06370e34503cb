"""What an agent can still work with after a compaction: `make evidence`.

Plain recall asks whether a string that a later call needs is in the request; a list of names
satisfies it. The measures here ask for more: that a name stands with what it was about (`tied`),
that the lines a later edit replaces can be read (`edits`), and how much of that a summary gives for
its tokens (`density`). Everything is deterministic.
"""
