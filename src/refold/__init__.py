"""Context compaction for LLM agents: cheap, valid and reversible.

A transcript only grows. Compaction is a set of edits. The context is a view.

Names are imported when they are first used, so that `import refold` costs next to nothing
(docs/decisions/0011-lazy-names.md).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.budget.budget import Budget, Check
    from refold.codecs.repair import RepairResult, check, repair
    from refold.compactor.compactor import Compactor
    from refold.compactor.defaults import compact, default_strategies
    from refold.compactor.preview import Preview
    from refold.compactor.session import Session
    from refold.core.profile import Profile
    from refold.core.strategy import Answer, Ask, Strategy
    from refold.core.view import View
    from refold.edits import Attempt, Edit
    from refold.errors import EditError, FormatError, RefoldError, StoreError
    from refold.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
    from refold.retrieval import Hit, Index, answer_call, recall, recall_tools
    from refold.rules.repair_draft import Repair
    from refold.rules.rule import Violation
    from refold.stores import MemoryStore, SidecarStore, SQLiteStore
    from refold.stores.store import Store
    from refold.transcript import Transcript

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
    "Media",
    "MemoryStore",
    "Message",
    "Opaque",
    "Preview",
    "Profile",
    "RefoldError",
    "Repair",
    "RepairResult",
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
    "Answer": "refold.core.strategy",
    "Ask": "refold.core.strategy",
    "Attempt": "refold.edits",
    "Budget": "refold.budget.budget",
    "Check": "refold.budget.budget",
    "Compactor": "refold.compactor.compactor",
    "Edit": "refold.edits",
    "EditError": "refold.errors",
    "FormatError": "refold.errors",
    "Hit": "refold.retrieval",
    "Index": "refold.retrieval",
    "Profile": "refold.core.profile",
    "Media": "refold.messages",
    "MemoryStore": "refold.stores",
    "Message": "refold.messages",
    "Opaque": "refold.messages",
    "Preview": "refold.compactor.preview",
    "RefoldError": "refold.errors",
    "Repair": "refold.rules.repair_draft",
    "RepairResult": "refold.codecs.repair",
    "SQLiteStore": "refold.stores",
    "Session": "refold.compactor.session",
    "SidecarStore": "refold.stores",
    "Store": "refold.stores.store",
    "StoreError": "refold.errors",
    "Strategy": "refold.core.strategy",
    "Text": "refold.messages",
    "Thinking": "refold.messages",
    "ToolCall": "refold.messages",
    "ToolResult": "refold.messages",
    "Transcript": "refold.transcript",
    "View": "refold.core.view",
    "Violation": "refold.rules.rule",
    "answer_call": "refold.retrieval",
    "check": "refold.codecs.repair",
    "compact": "refold.compactor.defaults",
    "default_strategies": "refold.compactor.defaults",
    "recall": "refold.retrieval",
    "recall_tools": "refold.retrieval",
    "repair": "refold.codecs.repair",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
