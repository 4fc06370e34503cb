"""JSON values: canonical form, fields of values of any shape, and values as lines of text.

Canonical form has sorted keys, no spaces, unescaped characters, and integers for whole floats
(`1.0` is `1`). It removes the differences that clients make when they parse and re-serialise tool
arguments.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from math import isinf
from typing import Any, NamedTuple

from refold.errors import FormatError


def _as_json(value: Any) -> Any:
    """Convert what vendors' SDKs accept to JSON: bytes to base64, an object to its fields. Raise
    `TypeError` for anything else."""
    if isinstance(value, bytes | bytearray):
        return b64encode(value).decode("ascii")
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_none=True)
    raise TypeError(f"a Python {type(value).__name__} stands in it")


_dump = json.JSONEncoder(
    ensure_ascii=False,
    check_circular=False,
    sort_keys=True,
    separators=(",", ":"),
    default=_as_json,
).encode
_PLAIN = frozenset({str, int, bool, type(None)})
_ONE_FIELD = re.compile(r'(\{"[^"\\\x00-\x1f]*+":) ?("(?>(?:[^"\\\x00-\x1f]++|\\["\\nrtbf])*)"\})')
"""Object with one string field, canonical except for a space: the most common arguments."""
_SHORT = 500
"""Maximum characters for matching; above, parsing is as fast."""


def _number(text: str) -> int | float:
    if isinf(number := float(text)):
        raise ValueError("no float is as large")
    return _whole(number)  # type: ignore[no-any-return]


_load = json.JSONDecoder(strict=False, parse_float=_number).decode


def canonicalize(value: Any) -> str:
    """Return *value* as canonical JSON. Raise `FormatError` if it is not a JSON value."""
    try:
        return _dump(_whole(value))
    except (TypeError, ValueError) as error:
        raise FormatError(f"not a JSON value: {error}") from error
    except RecursionError as error:
        raise FormatError("a JSON value nested too deeply to read") from error


def canonicalize_text(text: str) -> str:
    """Return JSON *text* as canonical JSON, empty text as `{}`, and other text unchanged, also
    JSON with a number that no float can hold."""
    if text in {"{}", ""}:
        return "{}"
    if len(text) < _SHORT and (short := _ONE_FIELD.fullmatch(text)):
        return short[1] + short[2]
    try:
        return _dump(_load(text))
    except (ValueError, RecursionError):
        return text


def parse_or_text(text: str) -> Any:
    """Return the value of JSON *text*, or the text itself if it is not JSON."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text


def parse_or_none(text: str | bytes) -> Any:
    """Return the value of JSON *text*, or None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _whole(value: Any) -> Any:
    """Return *value* with whole floats as integers, and tuples as lists."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        if _PLAIN.issuperset(map(type, value.values())):
            return value
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    return value


# --- fields of a value of any shape -------------------------------------------------------------


JsonObject = dict[str, Any]
"""JSON object."""
Record = Mapping[str, Any]
"""Read-only JSON object."""


def dig(value: Any, *keys: str) -> Any:
    """Return the value at the path *keys*; None if the path ends early."""
    for key in keys:
        if not isinstance(value, dict | Mapping):
            return None
        value = value.get(key)
    return value


def text_at(value: Any, *keys: str) -> str:
    """Return the string at the path *keys*; empty if there is none."""
    field = dig(value, *keys)
    return field if isinstance(field, str) else ""


def first_text(values: Iterable[Any], *keys: str) -> str:
    """Return the first non-empty string at the path *keys* in *values*; empty if there is none."""
    return next((text for value in values if (text := text_at(value, *keys))), "")


def object_at(value: Any, *keys: str) -> Record:
    """Return the object at the path *keys*; empty if there is none."""
    field = dig(value, *keys)
    return field if isinstance(field, dict | Mapping) else {}


def list_at(value: Any, *keys: str) -> list[Any]:
    """Return the list at the path *keys*; empty if there is none."""
    field = dig(value, *keys)
    return field if isinstance(field, list) else []


def objects_at(value: Any, *keys: str) -> Iterator[JsonObject]:
    """Yield the objects in the list at the path *keys*."""
    return objects_in(list_at(value, *keys))


def objects_in(items: Any) -> Iterator[JsonObject]:
    """Yield the objects in a list; nothing if *items* is not a list."""
    return (item for item in (items if isinstance(items, list) else ()) if isinstance(item, dict))


def int_at(value: Any, *keys: str) -> int:
    """Return the integer at the path *keys*; -1 if there is none."""
    field = dig(value, *keys)
    return field if isinstance(field, int) and not isinstance(field, bool) else -1


def without_keys(value: Record, *keys: str) -> JsonObject:
    """Return a copy without *keys*."""
    return {key: item for key, item in value.items() if key not in keys}


def without_empty(value: Record) -> JsonObject:
    """Return a copy without falsy values: null, zero, and empty strings, lists and objects."""
    return {key: item for key, item in value.items() if item}


def parse_time(value: Any) -> datetime | None:
    """Return the time in UTC of ISO 8601, Unix seconds or milliseconds; None for anything else."""
    with suppress(ValueError, OverflowError, OSError):
        if isinstance(value, str):
            when = datetime.fromisoformat(value)
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
    return None


# --- objects as lines ---------------------------------------------------------------------------

LONGEST_FIELD = 200
"""Maximum characters of a field that is written into the line of its object."""
LONGEST_LEAD = 120
"""Maximum characters of a lead, the path to an object."""
DEEPEST = 20
"""Maximum nesting depth of objects and arrays that are read."""


class JsonLine(NamedTuple):
    """Fields of one object or array."""

    lead: str
    """Path to them: `order_id: 17 › items › `."""
    text: str
    """`sku: A-1, price: 20`."""
    columns: str = ""
    """Keys, `sku | price`, if the line has the whole object like a row of a table."""
    cells: str = ""
    """Values, `A-1 | 20`."""


def iter_json_lines(value: Any) -> Iterator[JsonLine]:
    """Yield a JSON object or array as lines, in order. An object's short fields share lines, and
    the first of them identifies it in the leads of later lines. An array entry with short values is
    one line, including its inner objects. A long string has lines of its own."""
    waiting: list[tuple[str, Any, int, bool]] = [("", value, 0, False)]
    while waiting:
        lead, item, depth, is_entry = waiting.pop()
        lead = lead if len(lead) <= LONGEST_LEAD else "… " + lead[-LONGEST_LEAD:]
        if not isinstance(item, dict | list):
            rows = _write_scalar(item).splitlines()
            yield from (JsonLine(lead, row) for row in rows if row.strip())
            continue
        short, long = _split_fields(item)
        flat = _split_fields(_flatten(item)) if is_entry and isinstance(item, dict) else ([], [])
        if is_row := len(flat[0]) > 1 and sum(len(text) for _, text in flat[0]) <= LONGEST_FIELD:
            short, long = flat
        fields = [f"{key}: {text}" if key else text for key, text in short]
        name = f"{fields[0]} › " if short and isinstance(item, dict) else ""
        if is_row:
            yield JsonLine(lead, ", ".join(fields), *map(" | ".join, zip(*short, strict=True)))
        else:
            filled = [field for field in fields if not field.endswith(": null")]
            rows = list(_join_fields(filled or fields))
            yield from (JsonLine(lead + name if at else lead, row) for at, row in enumerate(rows))
        if depth < DEEPEST:
            inner = [(f"{lead}{name}{key}{' › ' if key else ''}", field) for key, field in long]
            is_list = isinstance(item, list)
            waiting += [(place, field, depth + 1, is_list) for place, field in reversed(inner)]


def _split_fields(item: Record | list[Any]) -> tuple[list[tuple[str, str]], list[tuple[str, Any]]]:
    """Return the short fields of an object or array as text, and the others."""
    pairs = item.items() if isinstance(item, Mapping) else (("", entry) for entry in item)
    short, long = list[tuple[str, str]](), list[tuple[str, Any]]()
    for key, field in pairs:
        if (text := _write_short(field)) is None:
            long.append((key, field))
        else:
            short.append((key, text))
    return short, long


def _flatten(item: Record) -> JsonObject:
    """Return an object with the fields of its flat inner objects merged in: `prices.economy`."""
    flat: JsonObject = {}
    for key, field in item.items():
        if isinstance(field, dict) and not any(isinstance(v, dict | list) for v in field.values()):
            flat.update((f"{key}.{name}", value) for name, value in field.items())
        else:
            flat[key] = field
    return flat


def join_texts(text: str) -> str:
    r"""Return the multi-line strings of a JSON array of objects that each have one, else *text*.
    Tools that read parts of a file return such arrays
    (`[{"query": "a.py:1-2", "result": "1 | a\n2 | b"}]`)."""
    rows = parse_or_none(text) if text.startswith("[{") else None
    texts = [
        [s for s in row.values() if isinstance(s, str) and "\n" in s] for row in objects_in(rows)
    ]
    return "\n".join(map("\n".join, texts)) if texts and all(texts) else text


def spell_cut(text: str) -> str:
    r"""Return a text, unescaped if `\n` separates most of its lines, as in truncated JSON."""
    is_cut = text.count("\\n") > 5 * (text.count("\n") + 2)
    return text.replace('\\"', '"').replace("\\n", "\n") if is_cut else text


def _write_short(field: Any) -> str | None:
    """Return a field as one line; None if it is empty, nested, too long or of several lines."""
    if isinstance(field, list) and not any(isinstance(entry, dict | list) for entry in field):
        text = ", ".join(map(_write_scalar, field)) or "none"
    elif isinstance(field, dict | list):
        text = "" if field else "none"
    else:
        text = _write_scalar(field)
    return text if text and len(text) <= LONGEST_FIELD and "\n" not in text else None


def _write_scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _join_fields(fields: Iterable[str]) -> Iterator[str]:
    """Join fields with commas, in lines of about `LONGEST_FIELD` characters."""
    row = ""
    for field in fields:
        if row and len(row) + len(field) > LONGEST_FIELD:
            yield row
            row = ""
        row = f"{row}, {field}" if row else field
    if row:
        yield row
