"""Context compaction for LLM agents: cheap, valid and reversible.

A transcript only grows. Compaction is a set of edits. The context is a view.

Names are imported when they are first used, so that `import refold` costs next to nothing
(docs/decisions/0011-lazy-names.md).
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def lazy_names(
    package: str, modules: Mapping[str, Iterable[str]]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of *package*, whose *modules*, by their names
    below it, have the names of its face. Type checkers read the stub beside it."""
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def import_name(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)  # asked for once
        return value

    return sorted(homes), import_name, lambda: sorted({*vars(sys.modules[package]), *homes})


__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "budget.budget": ("Budget", "Check"),
        "codecs.repair": ("RepairResult", "check", "repair"),
        "compactor.compactor": ("Compactor",),
        "compactor.defaults": ("compact", "default_strategies"),
        "compactor.preview": ("Preview",),
        "compactor.session": ("Session",),
        "core.profile": ("Profile",),
        "core.strategy": ("Answer", "Ask", "Strategy"),
        "core.view": ("View",),
        "edits": ("Attempt", "Edit"),
        "errors": ("EditError", "FormatError", "RefoldError", "StoreError"),
        "messages": ("Media", "Message", "Opaque", "Text", "Thinking", "ToolCall", "ToolResult"),
        "retrieval": ("Hit", "Index", "answer_call", "recall", "recall_tools"),
        "rules.repair_draft": ("Repair",),
        "rules.rule": ("Violation",),
        "stores": ("MemoryStore", "SidecarStore", "SQLiteStore"),
        "stores.store": ("Store",),
        "transcript": ("Transcript",),
    },
)
