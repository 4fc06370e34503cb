"""Spans of time as people write them."""

import re

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")


def parse_duration(text: str) -> float:
    """`7d`, `12h`, `30m`, `90s`, `2w` in seconds. Raises ValueError for anything else, and for no time at all."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None or not float(found[1]):
        raise ValueError(f"{text!r} is no time: write it as 7d, 12h or 30m")
    return float(found[1]) * UNITS[found[2]]
