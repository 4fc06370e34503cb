"""Context compaction for LLM agents: cheap, valid and reversible.

A transcript only grows. Compaction is a set of edits. The context is a view.
"""

from refold.attempt import Attempt
from refold.budget import Budget
from refold.checking import check
from refold.compactor import Compactor, Session
from refold.defaults import compact, default_strategies
from refold.edits import Edit
from refold.errors import EditError, FormatError, RefoldError, StoreError
from refold.lens import Lens
from refold.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from refold.repairing import Repaired, repair
from refold.rules.draft import Repair
from refold.rules.verdict import Violation
from refold.store import Store
from refold.stores import MemoryStore, SidecarStore, SQLiteStore
from refold.strategy import Answer, Ask, Strategy
from refold.transcript import Transcript
from refold.view import View

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Ask",
    "Attempt",
    "Budget",
    "Compactor",
    "Edit",
    "EditError",
    "FormatError",
    "Lens",
    "Media",
    "MemoryStore",
    "Message",
    "Opaque",
    "RefoldError",
    "Repair",
    "Repaired",
    "SQLiteStore",
    "Session",
    "SidecarStore",
    "Store",
    "StoreError",
    "Strategy",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolResult",
    "Transcript",
    "View",
    "Violation",
    "check",
    "compact",
    "default_strategies",
    "repair",
]
