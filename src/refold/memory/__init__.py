"""What outlives a compaction: facts, preferences and decisions, kept before messages are hidden
(docs/recall.md)."""

from refold.memory.extract import Extraction, Extractor, RuleExtractor, redact
from refold.memory.flush import Backlog, FlushResult, MemoryFlush, aflush, flush
from refold.memory.model import ModelExtractor
from refold.memory.stores import Memory, MemorySink, ProcessMemories, SQLiteMemories

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
