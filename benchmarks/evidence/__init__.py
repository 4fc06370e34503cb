"""Measure what an agent can still work with after a compaction: `make evidence`.

Plain recall asks whether a string that a later call needs is in the request. A bare list of names
would pass. These measures are stricter: whether a name appears in its context (`tied`), whether the
lines that a later edit replaces are readable (`edits`), and how much of that a summary gives per
token (`density`). Everything is deterministic.
"""
