"""Corpora of recorded sessions: pure functions of one record, or of a batch of records.

They keep no state and ask no model, so any engine can run them anywhere. The same record and
settings give the same rows, byte for byte.
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
