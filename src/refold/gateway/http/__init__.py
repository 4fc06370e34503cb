"""HTTP: incoming requests, upstream connections, content codings, server-sent events."""
