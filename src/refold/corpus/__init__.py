"""Corpora of recorded sessions: pure functions of one record, or of a batch of records.

They keep nothing and ask no model, so that any engine may run them anywhere: the same record and
settings give the same rows, to the byte.
"""

from refold.corpus.rows import (
    SCHEMAS,
    check,
    check_batch,
    compact,
    compact_batch,
    repair,
    repair_batch,
    stats,
    stats_batch,
    unroll_batch,
)
from refold.corpus.segments import unroll

__all__ = [
    "SCHEMAS",
    "check",
    "check_batch",
    "compact",
    "compact_batch",
    "repair",
    "repair_batch",
    "stats",
    "stats_batch",
    "unroll",
    "unroll_batch",
]
