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
    module: str, homes: Mapping[str, Iterable[str]], package: str = ""
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of *module*. *homes* maps other modules, named
    relative to *package* (by default the module), to the public names that they define. Type
    checkers read the stub beside it."""
    home_of = {
        name: f"{package or module}.{home}" for home, names in homes.items() for name in names
    }

    def import_name(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[module], name, value)  # the next access finds it there
        return value

    return sorted(home_of), import_name, lambda: sorted({*vars(sys.modules[module]), *home_of})


__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "budget.budget": ("Budget", "Check"),
        "codecs.repair": ("RepairResult", "check", "repair"),
        "compactor.compactor": ("Compactor", "compact"),
        "compactor.settings": ("default_strategies",),
        "compactor.by_hand": ("Preview",),
        "compactor.conversations": ("Session",),
        "core.profile": ("Profile",),
        "core.strategy": ("Answer", "Ask", "Strategy"),
        "core.view": ("View",),
        "edits": ("Attempt", "Edit"),
        "errors": ("EditError", "FormatError", "RefoldError", "StoreError"),
        "messages": ("Media", "Message", "Opaque", "Text", "Thinking", "ToolCall", "ToolResult"),
        "retrieval": ("Hit", "Index", "answer_call", "recall", "recall_tools"),
        "rules.rule": ("Repair", "Violation"),
        "stores": ("MemoryStore", "SidecarStore", "SQLiteStore"),
        "stores.store": ("Store",),
        "transcript": ("Transcript",),
    },
)
