"""What outlives a compaction: facts, preferences and decisions, kept before messages are hidden (docs/memory.md)."""

from refold.memory.extract import Extract, Extractor, RuleMemories
from refold.memory.flush import Backlog, Flushed, Flushing, aflush, flush
from refold.memory.model import ModelMemories
from refold.memory.redact import redact
from refold.memory.stores import Memory, MemorySink, ProcessMemories, SQLiteMemories

__all__ = [
    "Backlog",
    "Extract",
    "Extractor",
    "Flushed",
    "Flushing",
    "Memory",
    "MemorySink",
    "ModelMemories",
    "ProcessMemories",
    "RuleMemories",
    "SQLiteMemories",
    "aflush",
    "flush",
    "redact",
]
