"""Where edits are kept: in memory, in an SQLite file, in a text file beside a session
(docs/stores.md)."""

from refold.stores.memory import MemoryStore
from refold.stores.sidecar import SidecarStore
from refold.stores.sqlite import SQLiteStore

__all__ = ["MemoryStore", "SQLiteStore", "SidecarStore"]
