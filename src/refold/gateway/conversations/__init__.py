"""The conversations that the gateway knows, and how they are shared between processes."""
