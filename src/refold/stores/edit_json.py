"""Edits and ledger rows as JSON: documented in docs/edit-format.md, exact, and the same in every store.

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
    """One edit as one line of JSON, without a line end."""
    return dump({"refold": FORMAT, **edit_fields(edit)})


def load_edit(text: str | bytes) -> Edit:
    """Read what `dump_edit` wrote. Raises `StoreError`."""
    return read_edit(load(text))


def dump_row(row: LedgerRow) -> str:
    """One ledger row as one line of JSON, without a line end."""
    return dump({"refold": FORMAT, **row_fields(row)})


def load_row(text: str | bytes) -> LedgerRow:
    """Read what `dump_row` wrote. Raises `StoreError`."""
    return read_row(load(text))


# --- documents -------------------------------------------------------------------------------


def dump(document: Json) -> str:
    """Compact JSON in one line that UTF-8 can hold; lone surrogates, and only they, are escaped."""
    text = _encoder.encode(document)
    try:
        text.encode()
    except UnicodeEncodeError:
        # `backslashreplace` writes a lone surrogate as \udXXX, which is JSON's own escape for it.
        return _encoder.encode(_split(document)).encode("utf-8", "backslashreplace").decode()
    return text


def load(text: str | bytes) -> Json:
    """A document of this format or an older one. Raises `StoreError`: `NewerFormatError` for a newer one."""
    try:
        document = json.loads(text)
    except (
        ValueError,
        TypeError,
        RecursionError,
    ) as error:  # TypeError: a damaged row holds no text
        raise StoreError(f"malformed JSON: {error}") from error
    if not isinstance(document, dict):
        raise StoreError(f"a JSON object was expected, not {type(document).__name__}")
    version = _get(document, "refold", int)
    if version > FORMAT:
        raise NewerFormatError(
            f"written in format {version}; this version of Refold reads formats up to {FORMAT}"
        )
    return document


_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _split(value: Any) -> Any:
    """JSON would read two neighbouring halves as one character: such a text becomes a list of pieces."""
    if isinstance(value, str):
        return HALVES.split(value) if HALVES.search(value) else value
    if isinstance(value, list):
        return [_split(item) for item in value]
    return {key: _split(item) for key, item in value.items()} if isinstance(value, dict) else value


# --- edits -----------------------------------------------------------------------------------


def edit_fields(edit: Edit) -> Json:
    """An edit's fields, as they stand in a document or a list of edits."""
    insert = [
        {"role": m.role, "parts": [_part_fields(part) for part in m.parts]} for m in edit.insert
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
    """Read what `edit_fields` made. Raises `StoreError`, also when the id is not that of the fields."""
    insert = tuple(_message_of(message) for message in _get(value, "insert", list))
    edit = Edit(
        _get(value, "start", int),
        _get(value, "stop", int),
        insert,
        _text(value, "tip"),
        _text(value, "by"),
    )
    if "id" in value and value["id"] != edit.id:
        raise StoreError(f"damaged: it says edit {value['id']!r}, its fields make edit {edit.id}")
    return edit


def _message_of(value: Any) -> Message:
    return Message(
        _text(value, "role"), tuple(_part_of(part) for part in _get(value, "parts", list))
    )


def _part_fields(part: Part) -> Json:
    made: Json = {"type": TYPES[type(part)], **_fields(part)}
    if isinstance(part, ToolResult) and part.content:
        made["content"] = [_part_fields(item) for item in part.content]
    return made


def _part_of(value: Any) -> Part:
    kind = _text(value, "type")
    if kind not in KINDS:
        raise StoreError(f"unknown type of part {kind!r}")
    return KINDS[kind][1](value)


def _content_of(value: Json) -> tuple[Content, ...]:
    parts = tuple(_part_of(item) for item in _get(value, "content", list, []))
    for part in parts:
        if not isinstance(part, Text | Media | Opaque):
            raise StoreError(f"a tool result cannot hold a part of type {TYPES[type(part)]!r}")
    return cast("tuple[Content, ...]", parts)


def _media_of(value: Json) -> Media:
    texts = (_text(value, "kind"), _text(value, "mime", ""), _text(value, "ref", ""))
    return Media(*texts, *(_get(value, name, int, 0) for name in ("width", "height", "size")))


def _result_of(value: Json) -> ToolResult:
    error = _get(value, "error", bool, False)
    return ToolResult(_text(value, "id"), _content_of(value), error, _text(value, "name", ""))


KINDS: Mapping[str, tuple[type[Part], Callable[[Json], Part]]] = {
    "text": (Text, lambda v: Text(_text(v, "text"))),
    "thinking": (Thinking, lambda v: Thinking(_text(v, "text", ""), _text(v, "signature", ""))),
    "tool_call": (
        ToolCall,
        lambda v: ToolCall(_text(v, "id"), _text(v, "name"), _text(v, "arguments")),
    ),
    "tool_result": (ToolResult, _result_of),
    "media": (Media, _media_of),
    "opaque": (
        Opaque,
        lambda v: Opaque(
            _text(v, "kind"), _text(v, "json"), _text(v, "opens", ""), _text(v, "closes", "")
        ),
    ),
}
TYPES: Mapping[type[Part], str] = {made: kind for kind, (made, _) in KINDS.items()}


# --- ledger rows -----------------------------------------------------------------------------


def row_fields(row: LedgerRow) -> Json:
    """A ledger row's fields."""
    return _fields(row)


_ROW_TEXTS = ("by", "reason", "model", "prompt", "grade", "actor", "trigger", "run", "tip")


def read_row(value: Json) -> LedgerRow:
    """Read what `row_fields` made. Raises `StoreError`."""
    when, cost = _get(value, "when", float | int), _get(value, "cost", float | int, 0.0)
    texts = {name: _text(value, name, "") for name in _ROW_TEXTS}
    counts = {name: _get(value, name, int, 0) for name in ("before", "after", "calls")}
    edit = None if value.get("edit") is None else _text(value, "edit")
    outcome = cast("Outcome", _text(value, "outcome"))
    action = cast("Action", _text(value, "action", "compact"))
    return LedgerRow(
        when=when, outcome=outcome, action=action, edit=edit, cost=cost, **counts, **texts  # type: ignore[arg-type]  # grade
    )


# --- one field -------------------------------------------------------------------------------


def _fields(value: Part | LedgerRow) -> Json:
    """The fields of a value that are not at their default, in the order of its class."""
    found = ((field.name, getattr(value, field.name), field.default) for field in fields(value))
    return {name: data for name, data, default in found if data != default}


def _get(value: Any, name: str, made: Any, default: Any = None) -> Any:
    """A field of one JSON type; required unless it has a default."""
    if not isinstance(value, dict):
        raise StoreError(f"a JSON object was expected, not {type(value).__name__}")
    found = value.get(name, default)
    if not isinstance(found, made) or (made is int and isinstance(found, bool)):
        raise StoreError(f"field {name!r} is {'missing' if found is None else 'of the wrong type'}")
    return found


TEXT = (str, list)


def _text(value: Any, name: str, default: str | None = None) -> str:
    """A text; a list of pieces is one text that JSON would not have kept as it was (see `_split`)."""
    found = _get(value, name, TEXT, default)
    if isinstance(found, str):
        return found
    if not all(isinstance(piece, str) for piece in found):
        raise StoreError(f"field {name!r} is of the wrong type")
    return "".join(found)
