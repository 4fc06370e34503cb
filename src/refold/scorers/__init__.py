"""Scorers: how much each message matters, one file each, none of them knows another."""

from refold.scorers.attention import Attention
from refold.scorers.brevity import Brevity
from refold.scorers.emphasis import Emphasis
from refold.scorers.errors import Errors
from refold.scorers.freshness import Freshness
from refold.scorers.nearness import Nearness
from refold.scorers.recency import Recency
from refold.scorers.references import References
from refold.scorers.roles import Roles
from refold.scorers.weighted import Weighted

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
