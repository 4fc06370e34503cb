"""Characters and words: clipping, plain text of messages, canonical JSON, the wrapper around a
summary."""
