"""JSON values: one spelling for equal ones, fields of values of any shape, and values as lines of
text.

Canonical: sorted keys, no spaces, characters as they are, and a float that is a whole number
written as an integer (`1.0` is `1`): what clients change when they parse and re-serialise tool
arguments.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from refold.errors import FormatError


def _as_json(value: Any) -> Any:
    """Return what the JSON of a request has in place of what the vendors' SDKs take there: base64
    text for bytes, the fields of an object. Raises `TypeError` for anything else."""
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


# --- fields of a value of any shape -------------------------------------------------------------


JsonObject = dict[str, Any]
"""A JSON object."""
Record = Mapping[str, Any]
"""A JSON object that is only read."""


def dig(value: Any, *keys: str) -> Any:
    """Return the value under *keys*, one inside the other; None if the path ends early."""
    for key in keys:
        if not isinstance(value, dict | Mapping):
            return None
        value = value.get(key)
    return value


def text_at(value: Any, *keys: str) -> str:
    """Return the text under *keys*; empty if there is none."""
    field = dig(value, *keys)
    return field if isinstance(field, str) else ""


def first_text(values: Iterable[Any], *keys: str) -> str:
    """Return the first text under *keys* in one of *values*; empty if there is none."""
    return next((text for value in values if (text := text_at(value, *keys))), "")


def object_at(value: Any, *keys: str) -> Record:
    """Return the object under *keys*; empty if there is none."""
    field = dig(value, *keys)
    return field if isinstance(field, dict | Mapping) else {}


def list_at(value: Any, *keys: str) -> list[Any]:
    """Return the list under *keys*; empty if there is none."""
    field = dig(value, *keys)
    return field if isinstance(field, list) else []


def objects_at(value: Any, *keys: str) -> Iterator[JsonObject]:
    """Yield the objects in the list under *keys*, without anything else in it."""
    return objects_in(list_at(value, *keys))


def objects_in(items: Any) -> Iterator[JsonObject]:
    """Yield the objects in a list; nothing if it is no list."""
    return (item for item in (items if isinstance(items, list) else ()) if isinstance(item, dict))


def int_at(value: Any, *keys: str) -> int:
    """Return the whole number under *keys*; -1 if there is none."""
    field = dig(value, *keys)
    return field if isinstance(field, int) and not isinstance(field, bool) else -1


def without_keys(value: Record, *keys: str) -> JsonObject:
    """Return a copy without *keys*."""
    return {key: item for key, item in value.items() if key not in keys}


def without_empty(value: Record) -> JsonObject:
    """Return a copy without what says nothing: null, zero, and empty texts, lists and objects."""
    return {key: item for key, item in value.items() if item}


def parse_time(value: Any) -> datetime | None:
    """Return a time from ISO 8601, Unix seconds or Unix milliseconds; None for anything else."""
    with suppress(ValueError, OverflowError, OSError):
        if isinstance(value, str):
            when = datetime.fromisoformat(value)
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
    return None


# --- objects as lines ------------------------------------------------------------------------------

LONGEST_FIELD = 200
"""Characters of a field that is written into the line of its object."""
LONGEST_LEAD = 120
"""Characters of what says where an object stands."""
DEEPEST = 20
"""Objects and arrays inside each other that are opened."""


class JsonLine(NamedTuple):
    """Fields of one object, or of one array."""

    lead: str
    """What they stand in: `order_id: 17 › items › `."""
    text: str
    """`sku: A-1, price: 20`."""
    columns: str = ""
    """The keys alone, `sku | price`, if the line has the whole object, as a row of a table may."""
    cells: str = ""
    """The values alone, `A-1 | 20`."""


def iter_json_lines(value: Any) -> Iterator[JsonLine]:
    """Yield what a JSON object or array holds as lines, in order: of each object its short fields,
    behind what tells it from others, the first of them. An object in an array is one line, if its
    values are short, with the fields of objects in it. A long text has lines of its own."""
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
    """Return the short fields of an object or array, written, and the others."""
    pairs = item.items() if isinstance(item, Mapping) else (("", entry) for entry in item)
    short, long = list[tuple[str, str]](), list[tuple[str, Any]]()
    for key, field in pairs:
        if (text := _write_short(field)) is None:
            long.append((key, field))
        else:
            short.append((key, text))
    return short, long


def _flatten(item: Record) -> JsonObject:
    """Return an object with the fields of the objects in it: `prices.economy`."""
    flat: JsonObject = {}
    for key, field in item.items():
        if isinstance(field, dict) and not any(isinstance(v, dict | list) for v in field.values()):
            flat.update((f"{key}.{name}", value) for name, value in field.items())
        else:
            flat[key] = field
    return flat


def join_texts(text: str) -> str:
    r"""Return the texts of several lines in a JSON array of objects each of which has one, as tools
    answer that read parts of a file (`[{"query": "a.py:1-2", "result": "1 | a\n2 | b"}]`); else
    *text*."""
    rows = parse_or_none(text) if text.startswith("[{") else None
    texts = [
        [s for s in row.values() if isinstance(s, str) and "\n" in s] for row in objects_in(rows)
    ]
    return "\n".join(map("\n".join, texts)) if texts and all(texts) else text


def spell_cut(text: str) -> str:
    r"""Return a text with its escapes spelled out if `\n` parts most of its lines, as in a string
    of JSON that a tool cut, so that nothing can parse it."""
    is_cut = text.count("\\n") > 5 * (text.count("\n") + 2)
    return text.replace('\\"', '"').replace("\\n", "\n") if is_cut else text


def _write_short(field: Any) -> str | None:
    """Write a field in one line; None if it holds objects, or is too long for that."""
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
    """Yield fields behind each other, in lines of about `LONGEST_FIELD` characters."""
    row = ""
    for field in fields:
        if row and len(row) + len(field) > LONGEST_FIELD:
            yield row
            row = ""
        row = f"{row}, {field}" if row else field
    if row:
        yield row
