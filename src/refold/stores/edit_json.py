"""Edits and ledger rows as JSON: documented in docs/stores.md, exact, and the same in every
store.

Field order is fixed and a field at its default is left out, so equal values give equal bytes.
Fields that this version does not know are passed over when reading; a newer format is refused.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, cast

from refold.edits import Edit, Outcome
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
from refold.stores.store import Action, LedgerRow

FORMAT = 1
"""Version of the form written here: the field `refold` of every document and line."""

HALVES = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")
"""Between two halves of a surrogate pair that stand side by side without being one character."""

Json = dict[str, Any]


class NewerFormatError(StoreError):
    """Written by a newer version of Refold."""


def dump_edit(edit: Edit) -> str:
    """Return one edit as one line of JSON, without a line end."""
    return dump({"refold": FORMAT, **edit_fields(edit)})


def load_edit(text: str | bytes) -> Edit:
    """Read what `dump_edit` wrote. Raises `StoreError`."""
    return read_edit(load(text))


def dump_row(row: LedgerRow) -> str:
    """Return one ledger row as one line of JSON, without a line end."""
    return dump({"refold": FORMAT, **row_fields(row)})


def load_row(text: str | bytes) -> LedgerRow:
    """Read what `dump_row` wrote. Raises `StoreError`."""
    return read_row(load(text))


# --- documents -------------------------------------------------------------------------------


def dump(document: Json) -> str:
    """Return compact JSON in one line that UTF-8 can hold; only lone surrogates are escaped."""
    text = _encoder.encode(document)
    try:
        text.encode()
    except UnicodeEncodeError:
        # `backslashreplace` writes a lone surrogate as \udXXX, which is JSON's own escape for it.
        return _encoder.encode(_split(document)).encode("utf-8", "backslashreplace").decode()
    return text


def load(text: str | bytes) -> Json:
    """Read a document of this format or an older one. Raises `StoreError`, `NewerFormatError`."""
    try:
        document = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:  # TypeError: a row without text
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
    """JSON would read two neighbouring halves as one character: such a text becomes a list of
    pieces."""
    if isinstance(value, str):
        return HALVES.split(value) if HALVES.search(value) else value
    if isinstance(value, list):
        return [_split(item) for item in value]
    return {key: _split(item) for key, item in value.items()} if isinstance(value, dict) else value


# --- edits -----------------------------------------------------------------------------------


def edit_fields(edit: Edit) -> Json:
    """Return an edit's fields, as they stand in a document or a list of edits."""
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


def read_edit(value: Json) -> Edit:
    """Read what `edit_fields` made. Raises `StoreError`, also if the id is not that of the
    fields."""
    start, stop = _field(value, "start", int), _field(value, "stop", int)
    insert = tuple(_read_message(message) for message in _field(value, "insert", list))
    edit = Edit(start, stop, insert, _text(value, "tip"), _text(value, "by"))
    if "id" in value and value["id"] != edit.id:
        raise StoreError(f"damaged: it says edit {value['id']!r}, its fields make edit {edit.id}")
    return edit


def _read_message(value: Any) -> Message:
    parts = tuple(_read_part(part) for part in _field(value, "parts", list))
    return Message(_text(value, "role"), parts)


def _part_fields(part: Part) -> Json:
    document: Json = {"type": TYPES[type(part)], **_nondefault_fields(part)}
    if isinstance(part, ToolResult) and part.content:
        document["content"] = [_part_fields(item) for item in part.content]
    return document


def _read_part(value: Any) -> Part:
    kind = _text(value, "type")
    if kind not in KINDS:
        raise StoreError(f"unknown type of part {kind!r}")
    return KINDS[kind][1](value)


def _read_content(value: Json) -> tuple[Content, ...]:
    parts = tuple(_read_part(item) for item in _field(value, "content", list, []))
    for part in parts:
        if not isinstance(part, Text | Media | Opaque):
            raise StoreError(f"a tool result cannot hold a part of type {TYPES[type(part)]!r}")
    return cast("tuple[Content, ...]", parts)


def _read_media(value: Json) -> Media:
    texts = (_text(value, "kind"), _text(value, "mime", ""), _text(value, "ref", ""))
    return Media(*texts, *(_field(value, name, int, 0) for name in ("width", "height", "size")))


def _read_result(value: Json) -> ToolResult:
    error = _field(value, "error", bool, False)
    return ToolResult(_text(value, "id"), _read_content(value), error, _text(value, "name", ""))


def _read_opaque(value: Json) -> Opaque:
    texts = (_text(value, "kind"), _text(value, "json"))
    return Opaque(*texts, _text(value, "opens", ""), _text(value, "closes", ""))


KINDS: Mapping[str, tuple[type[Part], Callable[[Json], Part]]] = {
    "text": (Text, lambda v: Text(_text(v, "text"))),
    "thinking": (Thinking, lambda v: Thinking(_text(v, "text", ""), _text(v, "signature", ""))),
    "tool_call": (
        ToolCall,
        lambda v: ToolCall(_text(v, "id"), _text(v, "name"), _text(v, "arguments")),
    ),
    "tool_result": (ToolResult, _read_result),
    "media": (Media, _read_media),
    "opaque": (Opaque, _read_opaque),
}
TYPES: Mapping[type[Part], str] = {part: kind for kind, (part, _) in KINDS.items()}


# --- ledger rows -----------------------------------------------------------------------------


def row_fields(row: LedgerRow) -> Json:
    """Return a ledger row's fields."""
    return _nondefault_fields(row)


_ROW_COUNTS = ("before", "after", "calls")
_ROW_TEXTS = ("by", "reason", "model", "prompt", "grade", "actor", "trigger", "run", "tip")


def read_row(value: Json) -> LedgerRow:
    """Read what `row_fields` made. Raises `StoreError`."""
    optional: Json = {name: _field(value, name, int, 0) for name in _ROW_COUNTS}
    optional |= {name: _text(value, name, "") for name in _ROW_TEXTS}
    return LedgerRow(
        when=_field(value, "when", float | int),
        outcome=cast("Outcome", _text(value, "outcome")),
        edit=None if value.get("edit") is None else _text(value, "edit"),
        action=cast("Action", _text(value, "action", "compact")),
        cost=_field(value, "cost", float | int, 0.0),
        **optional,
    )


# --- one field -------------------------------------------------------------------------------


def _nondefault_fields(value: Part | LedgerRow) -> Json:
    """Return the fields of a value that are not at their default, in the order of its class."""
    settings = ((field, getattr(value, field.name)) for field in fields(value))
    return {field.name: data for field, data in settings if data != field.default}


def _field(value: Any, name: str, kind: Any, default: Any = None) -> Any:
    """Return a field of one JSON type; it must be there unless it has a default."""
    if not isinstance(value, dict):
        raise StoreError(f"a JSON object was expected, not {type(value).__name__}")
    data = value.get(name, default)
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise StoreError(f"field {name!r} is {'missing' if data is None else 'of the wrong type'}")
    return data


def _text(value: Any, name: str, default: str | None = None) -> str:
    """Return a text field. A list of pieces is one text that JSON would change (see `_split`)."""
    text = _field(value, name, (str, list), default)
    if isinstance(text, str):
        return text
    if not all(isinstance(piece, str) for piece in text):
        raise StoreError(f"field {name!r} is of the wrong type")
    return "".join(text)
