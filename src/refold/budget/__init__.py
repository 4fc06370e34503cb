"""How large a request may be, and when compaction is due."""
