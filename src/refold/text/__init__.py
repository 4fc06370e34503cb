"""Characters and words: clipping, outlines, failures in output, plain text of messages, canonical
JSON, the wrapper around a summary."""
