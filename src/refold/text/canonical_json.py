"""JSON in one spelling, so that equal values are equal texts whoever serialised them.

Sorted keys, no spaces, characters as they are, and a float that is a whole number written as an
integer (`1.0` is `1`): what clients change when they parse and re-serialise tool arguments.
"""

import json
import re
from typing import Any

from refold.errors import FormatError

_dump = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, sort_keys=True, separators=(",", ":")
).encode
_PLAIN = frozenset({str, int, bool, type(None)})
_ONE_FIELD = re.compile(r'(\{"[^"\\\x00-\x1f]*+":) ?("(?:[^"\\\x00-\x1f]++|\\["\\nrtbf])*+"\})')
"""An object of one field that holds a string, in canonical form but for a space: the commonest
arguments."""
_SHORT = 500
"""Characters; above, parsing is as fast as matching."""


def _number(text: str) -> int | float:
    return _whole(float(text))  # type: ignore[no-any-return]


_load = json.JSONDecoder(strict=False, parse_float=_number).decode


def canonicalize(value: Any) -> str:
    """Return *value* as canonical JSON. Raises `FormatError` when it is no JSON value."""
    try:
        return _dump(_whole(value))
    except (TypeError, ValueError) as error:
        raise FormatError(f"not a JSON value: {error}") from error
    except RecursionError as error:
        raise FormatError("a JSON value nested too deeply to read") from error


def canonicalize_text(text: str) -> str:
    """Return JSON *text* as canonical JSON; text that is no JSON as it is, nothing as `{}`."""
    if text in {"{}", ""}:
        return "{}"
    if len(text) < _SHORT and (short := _ONE_FIELD.fullmatch(text)):
        return short[1] + short[2]
    try:
        return _dump(_load(text))
    except (ValueError, RecursionError):
        return text


def parse_or_text(text: str) -> Any:
    """Return the value that JSON *text* holds; the text itself if it is no JSON."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text


def parse_or_none(text: str | bytes) -> Any:
    """Return the value that JSON *text* holds; None if it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _whole(value: Any) -> Any:
    """Return *value* with integers for whole floats; the same object if there is none."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        if _PLAIN.issuperset(map(type, value.values())):
            return value
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    return value
