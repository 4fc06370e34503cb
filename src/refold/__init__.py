"""Context compaction for LLM agents: cheap, valid and reversible.

A transcript only grows. Compaction is a set of edits. The context is a view.

Names are imported when they are first used, so that `import refold` costs next to nothing
(docs/decisions/0011-lazy-names.md).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.attempt import Attempt
    from refold.budget import Budget, Check
    from refold.checking import check
    from refold.compactor import Compactor
    from refold.defaults import compact, default_strategies
    from refold.edits import Edit
    from refold.errors import EditError, FormatError, RefoldError, StoreError
    from refold.lens import Lens
    from refold.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
    from refold.preview import Preview
    from refold.recalling import Hit, Index, answer_call, recall, recall_tools
    from refold.repairing import Repaired, repair
    from refold.rules.draft import Repair
    from refold.rules.verdict import Violation
    from refold.session import Session
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
    "Check",
    "Compactor",
    "Edit",
    "EditError",
    "FormatError",
    "Hit",
    "Index",
    "Lens",
    "Media",
    "MemoryStore",
    "Message",
    "Opaque",
    "Preview",
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
    "answer_call",
    "check",
    "compact",
    "default_strategies",
    "recall",
    "recall_tools",
    "repair",
]

_HOMES = {
    "Answer": "refold.strategy",
    "Ask": "refold.strategy",
    "Attempt": "refold.attempt",
    "Budget": "refold.budget",
    "Check": "refold.budget",
    "Compactor": "refold.compactor",
    "Edit": "refold.edits",
    "EditError": "refold.errors",
    "FormatError": "refold.errors",
    "Hit": "refold.recalling",
    "Index": "refold.recalling",
    "Lens": "refold.lens",
    "Media": "refold.messages",
    "MemoryStore": "refold.stores",
    "Message": "refold.messages",
    "Opaque": "refold.messages",
    "Preview": "refold.preview",
    "RefoldError": "refold.errors",
    "Repair": "refold.rules.draft",
    "Repaired": "refold.repairing",
    "SQLiteStore": "refold.stores",
    "Session": "refold.session",
    "SidecarStore": "refold.stores",
    "Store": "refold.store",
    "StoreError": "refold.errors",
    "Strategy": "refold.strategy",
    "Text": "refold.messages",
    "Thinking": "refold.messages",
    "ToolCall": "refold.messages",
    "ToolResult": "refold.messages",
    "Transcript": "refold.transcript",
    "View": "refold.view",
    "Violation": "refold.rules.verdict",
    "answer_call": "refold.recalling",
    "check": "refold.checking",
    "compact": "refold.defaults",
    "default_strategies": "refold.defaults",
    "recall": "refold.recalling",
    "recall_tools": "refold.recalling",
    "repair": "refold.repairing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
