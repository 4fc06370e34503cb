"""What outlives a compaction: facts, preferences and decisions, kept before messages are hidden
(docs/recall.md)."""

from refold.memory.flush import Backlog, FlushResult, MemoryFlush, aflush, flush
from refold.memory.memories import (
    Extraction,
    Extractor,
    Memory,
    MemorySink,
    ProcessMemories,
    RuleExtractor,
    SQLiteMemories,
    redact,
)
from refold.memory.model import ModelExtractor

__all__ = [
    "Backlog",
    "Extraction",
    "Extractor",
    "FlushResult",
    "Memory",
    "MemoryFlush",
    "MemorySink",
    "ModelExtractor",
    "ProcessMemories",
    "RuleExtractor",
    "SQLiteMemories",
    "aflush",
    "flush",
    "redact",
]
