"""When compaction is due, how far it goes, and when it pays."""
