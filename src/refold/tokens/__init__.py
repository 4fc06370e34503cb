"""Counting tokens, and what is known of models: windows, prices."""
