"""Logs, metrics and processes of the gateway."""
