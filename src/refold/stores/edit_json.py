"""Edits and ledger rows as JSON, documented in docs/stores.md: exact, and the same in every store.

Field order is fixed, and of parts and rows fields at their default are omitted, so equal values
give equal bytes. Unknown fields are ignored when reading. A newer format is refused.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, cast

from refold.edits import Edit
from refold.errors import StoreError
from refold.messages import (
    Content,
    Media,
    Message,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from refold.stores.store import LedgerRow
from refold.text.json_values import JsonObject

FORMAT = 1
"""Version of the format, in the field `refold` of every document and line."""

SURROGATE_BOUNDARY = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")
"""Position between two neighbouring surrogates that form a pair but are separate characters."""


class NewerFormatError(StoreError):
    """The document was written by a newer version of Refold."""


def dump_edit(edit: Edit) -> str:
    """Return an edit as one line of JSON, without a line end."""
    return dump({"refold": FORMAT, **edit_fields(edit)})


def load_edit(text: str | bytes) -> Edit:
    """Read the output of `dump_edit`. Raises `StoreError`."""
    return read_edit(load(text))


def load_insert(text: str | bytes) -> tuple[Message, ...]:
    """Return only the messages of an edit, without comparing its id, which takes longer. Raises
    `StoreError`."""
    return _read_insert(load(text))


def dump_row(row: LedgerRow) -> str:
    """Return a ledger row as one line of JSON, without a line end."""
    return dump({"refold": FORMAT, **row_fields(row)})


def load_row(text: str | bytes) -> LedgerRow:
    """Read the output of `dump_row`. Raises `StoreError`."""
    return read_row(load(text))


# --- documents -------------------------------------------------------------------------------


def dump(document: JsonObject) -> str:
    """Return compact JSON in one line, encodable as UTF-8: lone surrogates are escaped. Raises
    ValueError for NaN and infinity."""
    text = _encoder.encode(document)
    try:
        text.encode()
    except UnicodeEncodeError:
        # `backslashreplace` writes a lone surrogate as \udXXX, which is JSON's own escape for it.
        return _encoder.encode(_split(document)).encode("utf-8", "backslashreplace").decode()
    return text


def load(text: str | bytes) -> JsonObject:
    """Read a document of this format or an older one. Raises `StoreError` for other data,
    `NewerFormatError` for a newer format."""
    try:
        document = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:  # TypeError: NULL in a row
        raise StoreError(f"malformed JSON: {error}") from error
    if not isinstance(document, dict):
        raise StoreError(f"a JSON object was expected, not {type(document).__name__}")
    version = _field(document, "refold", int)
    if version > FORMAT:
        raise NewerFormatError(
            f"written in format {version}; this version of Refold reads formats up to {FORMAT}"
        )
    return document


_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _split(value: Any) -> Any:
    """Return *value* with texts split into lists at neighbouring surrogates, which JSON would
    join."""
    if isinstance(value, str):
        return SURROGATE_BOUNDARY.split(value) if SURROGATE_BOUNDARY.search(value) else value
    if isinstance(value, list):
        return [_split(item) for item in value]
    return {key: _split(item) for key, item in value.items()} if isinstance(value, dict) else value


# --- edits -----------------------------------------------------------------------------------


def edit_fields(edit: Edit) -> JsonObject:
    """Return an edit's fields, as in a document or a list of edits."""
    insert = [
        {"role": message.role, "parts": [_part_fields(part) for part in message.parts]}
        for message in edit.insert
    ]
    return {
        "id": edit.id,
        "start": edit.start,
        "stop": edit.stop,
        "tip": edit.tip,
        "by": edit.by,
        "insert": insert,
    }


def read_edit(value: JsonObject) -> Edit:
    """Read the output of `edit_fields`. Raises `StoreError`, also if an id is given that does not
    match the fields."""
    start, stop = _field(value, "start", int), _field(value, "stop", int)
    insert = _read_insert(value)
    edit = Edit(start, stop, insert, _field(value, "tip", str), _field(value, "by", str))
    if "id" in value and value["id"] != edit.id:
        raise StoreError(f"damaged: it says edit {value['id']!r}, its fields make edit {edit.id}")
    return edit


def _read_insert(value: JsonObject) -> tuple[Message, ...]:
    return tuple(_read_message(message) for message in _field(value, "insert", list))


def _read_message(value: Any) -> Message:
    parts = tuple(_read_part(part) for part in _field(value, "parts", list))
    return Message(_field(value, "role", str), parts)


def _part_fields(part: Part) -> JsonObject:
    document: JsonObject = {"type": TYPES[type(part)], **_nondefault_fields(part)}
    if isinstance(part, ToolResult) and part.content:
        document["content"] = [_part_fields(item) for item in part.content]
    return document


def _read_part(value: Any) -> Part:
    kind = _field(value, "type", str)
    if kind not in PARTS:
        raise StoreError(f"unknown type of part {kind!r}")
    if kind == "tool_result":
        value = {**value, "content": _read_content(value)}
    return cast("Part", _read_fields(PARTS[kind], value))


def _read_content(value: JsonObject) -> tuple[Part, ...]:
    items = _field(value, "content", list) if "content" in value else ()
    for item in items:  # before they are read, since results may be nested without end
        if (kind := _field(item, "type", str)) in PARTS and PARTS[kind] not in CONTENT:
            raise StoreError(f"a tool result cannot hold a part of type {kind!r}")
    return tuple(map(_read_part, items))


PARTS: Mapping[str, type[Part]] = {
    "text": Text,
    "thinking": Thinking,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
    "media": Media,
    "opaque": Opaque,
}
TYPES: Mapping[type[Part], str] = {part: kind for kind, part in PARTS.items()}
CONTENT = frozenset({Text, Media, Opaque})


# --- ledger rows -----------------------------------------------------------------------------


def row_fields(row: LedgerRow) -> JsonObject:
    """Return a ledger row's fields."""
    return _nondefault_fields(row)


def read_row(value: JsonObject) -> LedgerRow:
    """Read the output of `row_fields`. Raises `StoreError`."""
    return cast("LedgerRow", _read_fields(LedgerRow, value))


# --- one field -------------------------------------------------------------------------------

_JSON_TYPES: Mapping[Any, type] = {int: int, float: float, bool: bool, tuple[Content, ...]: tuple}
"""JSON types of fields that are not texts. A result's content is parsed separately."""
_FIELDS: Mapping[type, Sequence[tuple[str, type, Any]]] = {
    kind: [(field.name, _JSON_TYPES.get(field.type, str), field.default) for field in fields(kind)]
    for kind in (*PARTS.values(), LedgerRow)
}
"""Name, JSON type and default of each field."""


def _nondefault_fields(value: Part | LedgerRow) -> JsonObject:
    """Return the fields of a value that differ from their default, in the order of its class."""
    settings = ((name, getattr(value, name), default) for name, _, default in _FIELDS[type(value)])
    return {name: data for name, data, default in settings if data != default}


def _read_fields(kind: type, value: Any) -> Any:
    """Return an instance of *kind* from its fields in *value*; missing ones have their default."""
    source, data = value if isinstance(value, dict) else {}, JsonObject()
    for name, json_type, default in _FIELDS[kind]:
        item = source.get(name, default)
        if type(item) is json_type:
            data[name] = item
        elif item is not default or item is MISSING:
            data[name] = _field(value, name, json_type)
    return kind(**data)


def _field(value: Any, name: str, kind: type) -> Any:
    """Return a required field of one JSON type. A float may be an integer, and a text a list of
    pieces (`_split`)."""
    if not isinstance(value, dict):
        raise StoreError(f"a JSON object was expected, not {type(value).__name__}")
    data = value.get(name)
    if kind is str and isinstance(data, list) and all(isinstance(piece, str) for piece in data):
        return "".join(data)
    if type(data) is not kind and not (kind is float and type(data) is int):
        raise StoreError(f"field {name!r} is {'missing' if data is None else 'of the wrong type'}")
    return data
