"""A record of a data set as a conversation, whatever its form."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import repeat
from typing import Any

from refold.codecs.codec import Payload
from refold.codecs.detect import open_payload
from refold.errors import FormatError
from refold.session_files import FIELDS, Format, Session, read_value
from refold.session_files.plain import BODY_KEYS, record_id
from refold.session_files.trajectories import TURNS
from refold.text.json_values import JsonObject, object_at, objects_at, text_at

_TEXTS = ("messages", "conversations", "body", "history", "trajectory", "content", "steps")
"""Fields that a table may hold as JSON text."""
_LISTS = (*FIELDS.values(), *TURNS, "history", "events", "simulations", "traj", "steps")
"""Fields whose lists make an object a record."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation out of a record, in the wire format nearest to what was sent."""

    session: str
    """The name that the record gives itself, else a hash of its content."""
    format: Format
    body: Mapping[str, Any]
    """The rest of the request: model, system prompt, tools; and what else stands in the record."""
    messages: Sequence[Any]

    @property
    def field(self) -> str:
        """The field of the request that holds the messages."""
        return FIELDS[self.format]

    @property
    def payload(self) -> JsonObject:
        """The request with all of its messages."""
        return {**self.body, self.field: list(self.messages)}

    def open(self) -> Payload:
        """Return the request opened by its codec."""
        return open_payload(self.payload, self.format)

    def row(self, messages: Sequence[Any], **fields: Any) -> JsonObject:
        """Return a row of this conversation with *messages* and other *fields*."""
        head = {"session": self.session, "format": self.format, "body": dict(self.body)}
        return {**head, "messages": list(messages), **fields}


def is_record(value: Any) -> bool:
    """Does a JSON value look like a record, and not like a line of a session file?"""
    if isinstance(value, list):
        return all(text_at(entry, "role") for entry in value) and bool(value)
    holders = (object_at(value), *(object_at(value, key) for key in BODY_KEYS))
    if any(_is_list(holder.get(field)) for holder in holders for field in _LISTS):
        return "$set" not in object_at(value)
    return bool(text_at(next(objects_at(value, "content"), {}), "class_"))


def _is_list(value: Any) -> bool:
    return isinstance(value, list) or (_is_json(value) and value.lstrip()[0] == "[")


def read_record(record: Any, format: str = "") -> Conversation:
    """Return the conversation in a record. Raises `FormatError` unless it holds exactly one."""
    conversations = list(read_records(record, format))
    if len(conversations) > 1:
        raise FormatError(f"the record holds {len(conversations)} conversations")
    return conversations[0]


def read_records(record: Any, format: str = "") -> Iterator[Conversation]:
    """Return the conversations in a record: an object, a list of messages, or the JSON text of
    either. *format* names its form if its shape should not decide. Raises `FormatError`; so does
    the iterator, which then goes on, at a conversation without messages."""
    value = _parse(record)
    if isinstance(value, dict):
        value |= {key: _parse(value[key]) for key in _TEXTS if _is_json(value.get(key))}
        if value.get("format") in FIELDS and isinstance(value.get("messages"), list):
            return iter([_read_row(value)])
    try:
        sessions = read_value(value, "the record", format)
    except FormatError as error:
        raise FormatError(_describe(value, error, format)) from error
    return map(convert, sessions, repeat(value))


def _parse(record: Any) -> Any:
    if not isinstance(record, str | bytes):
        return dict(record) if isinstance(record, Mapping) else record
    try:
        return json.loads(record)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"no JSON: {str(error)[:200]}") from error


def _is_json(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip()[:1] in ("[", "{")


def _read_row(row: JsonObject) -> Conversation:
    """Return the conversation of a row that a function of this room made."""
    session = text_at(row, "session") or _hash_json(row)
    return Conversation(session, row["format"], row.get("body") or {}, row["messages"])


def convert(session: Session, record: Any = None) -> Conversation:
    """Return the conversation of a session, which *record* may name. Raises `FormatError` if it has
    no messages."""
    if not session.messages:
        raise FormatError("the conversation has no messages")
    name = session.id or record_id(record) or _hash_json(record or session.messages)
    return Conversation(name, session.format, session.body, session.messages)


def _describe(value: Any, error: FormatError, format: str) -> str:
    if format:
        return (
            str(error).replace("no session file that Refold knows", "none").partition(" Tried")[0]
        )
    if not isinstance(value, dict):
        return f"no conversation in {type(value).__name__}"
    names = ", ".join(map(repr, list(value)[:8])) or "none"
    return f"no conversation in the fields {names}"


def _hash_json(value: Any) -> str:
    """Return 16 hex digits that name a JSON value by its content."""
    text = json.dumps(value, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def as_values(value: Any) -> Any:
    """Return lists for arrays, and objects without the empty fields that a table's type adds; what
    a message says may be empty."""
    if isinstance(value, Mapping):
        present = (pair for pair in value.items() if pair[1] is not None or pair[0] == "content")
        return {key: as_values(item) for key, item in present}
    if hasattr(value, "tolist"):
        value = value.tolist()
    return [as_values(item) for item in value] if isinstance(value, list | tuple) else value
