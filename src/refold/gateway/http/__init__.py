"""HTTP in and out: requests, upstream connections, encodings, server-sent events."""
