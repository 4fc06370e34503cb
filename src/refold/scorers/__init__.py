"""Scorers: how much each message of a transcript matters."""

from refold.scorers.messages import Attention, Brevity, Emphasis, Nearness, Recency, Roles, Weighted
from refold.scorers.tools import Errors, Freshness, References

__all__ = [
    "Attention",
    "Brevity",
    "Emphasis",
    "Errors",
    "Freshness",
    "Nearness",
    "Recency",
    "References",
    "Roles",
    "Weighted",
]
