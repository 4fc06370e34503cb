"""Spans of time as people write them."""

import re

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")


def parse_duration(text: str) -> float:
    """Return `7d`, `12h`, `30m`, `90s`, `2w` in seconds. Raises ValueError for anything else, and
    for no time at all."""
    match = _SPAN.fullmatch(text.strip().lower())
    if match is None or not float(match[1]):
        raise ValueError(f"{text!r} is no time: write it as 7d, 12h or 30m")
    return float(match[1]) * UNITS[match[2]]
