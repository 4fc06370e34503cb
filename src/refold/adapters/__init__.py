"""Refold inside agent frameworks, one file each. Each needs the extra named after it."""
