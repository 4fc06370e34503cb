"""What a wire format must offer, and a payload opened with one. A codec is a module (or any object)
with these names."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain, islice
from types import SimpleNamespace
from typing import Any, Protocol, cast

from refold.codecs.blocks import as_list, as_opaque, describe_misfit, with_reasoning
from refold.codecs.json_text import PrefixLookup, Span, conversation_field, join_json, split_json
from refold.errors import FormatError
from refold.messages import Message, Part
from refold.rules.request import Body
from refold.rules.rule import Rules
from refold.transcript import Joined

Wire = Any
"""One entry of a request's list of messages, as parsed from JSON."""


class Codec(Protocol):
    """One wire format. All functions are pure and leave their arguments alone."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module constant
        """`anthropic`, `openai_chat`, `openai_responses`, `gemini`, `bedrock`."""

    @property
    def FIELD(self) -> str:  # noqa: N802 - a module constant
        """The body's field that holds the conversation, such as `messages`, `input`, `contents`."""

    def rules(self, body: Body) -> Rules:
        """Return what this API refuses, for the model that *body* names (`{}` for a bare list)."""

    def fits(self, body: Body, items: Sequence[Wire]) -> int:
        """Rate how surely a payload is of this format: 0 not at all, 1 possible, more is surer."""

    def is_system(self, item: Wire) -> bool:
        """May this leading entry stand in the head (system prompt), outside the transcript?"""

    def system(self, body: Body) -> tuple[Part, ...]:
        """Return the system prompt that stands in fields of its own, beside the head."""

    def tools(self, body: Body) -> Iterable[Any]:
        """Return each tool definition, as parsed from JSON."""

    def decode(self, item: Wire, prior: Sequence[Message]) -> Message:
        """Decode one entry; *prior* is what was decoded before it.

        Raises `FormatError` when *item* is not even of the right JSON type.
        """

    def encode(self, message: Message) -> Wire:
        """Encode a message that came from no entry, such as a summary."""

    def patch(self, item: Wire, message: Message) -> Wire:
        """Change *item* as little as needed to say what *message* says; unknown fields stay."""

    def merge(self, first: Wire, second: Wire) -> Wire:
        """Join two neighbours of one role to one entry."""


def with_rules(codec: Codec, rules: Callable[[Body], Rules]) -> Codec:
    """Return *codec* with other *rules*: of an account, of a milder server, or your own.

    Call it once and keep the result: two of them are two formats.
    """
    names = [name for name in vars(Codec) if not name.startswith("_")]
    return cast(
        "Codec",
        SimpleNamespace(**{name: getattr(codec, name) for name in names} | {"rules": rules}),
    )


# --- what several formats answer alike: `tools = read_tools` in a codec --------------------------


def read_tools(body: Body) -> Sequence[Any]:
    """Return the tool definitions of a body that has them in `tools`."""
    return as_list(body.get("tools"))


def no_system(body: Body) -> tuple[Part, ...]:  # noqa: ARG001 - a codec's
    """Return nothing: the system prompt stands in leading messages."""
    return ()


def has_system_role(item: Wire) -> bool:
    """Is it a message of the role `system`?"""
    return isinstance(item, dict) and item.get("role") == "system"


# --- an opened payload --------------------------------------------------------------------------

FIELDS = ("messages", "input", "contents")
"""Fields that hold a conversation, in the formats we know."""
SAMPLE = 30
"""Entries that tell a format, as a rule."""


@dataclass(frozen=True, slots=True)
class Payload:
    """An opened payload. Positions count from the first entry after the head."""

    field: str
    """The field that holds the entries; empty for a bare list."""
    body: Body
    """Every other field, parsed."""
    raw_entries: Sequence[Any]
    """The entries, the head's too: parsed objects, or spans of a JSON text."""
    rebuild: Callable[[Iterable[slice | Any]], Any]
    """Puts raw entries back where they came from; a slice stands for those that were there."""
    codec: Codec = None  # type: ignore[assignment]  # until `refold.codecs.detect.recognize`
    head: int = 0
    """Number of leading system entries, which are no part of the transcript."""
    is_named: bool = False
    """Whether the format was named, so that its entries are still to be checked."""

    def read_by(self, codec: Codec, head: int, *, is_named: bool = False) -> "Payload":
        """Return this payload as one of *codec*'s whose first *head* entries are the head."""
        # Not by `replace`, which takes twice as long: each turn does it.
        opened = self.field, self.body, self.raw_entries, self.rebuild
        return Payload(*opened, codec, head, is_named)

    def __len__(self) -> int:
        return len(self.raw_entries) - self.head

    def entry(self, index: int) -> Wire:
        """Parse the entry at *index*."""
        return _load(self.raw_entries[self.head + index])

    def iter_entries(self, start: int = 0) -> Iterator[Wire]:
        """Parse the entries from *start* on, one at a time."""
        entries = self.raw_entries
        return (_load(entries[at]) for at in range(self.head + start, len(entries)))

    @property
    def full_body(self) -> Body:
        """The request with its conversation, all of it parsed; of a bare list, the conversation."""
        return {**self.body, self.codec.FIELD: list(map(_load, self.raw_entries))}

    @property
    def system(self) -> tuple[Part, ...]:
        """The system prompt, wherever the format keeps it."""
        head = (self.codec.decode(_load(entry), ()) for entry in self.raw_entries[: self.head])
        return (*self.codec.system(self.body), *chain.from_iterable(m.parts for m in head))

    @property
    def tools(self) -> tuple[str, ...]:
        """Each tool definition as canonical JSON."""
        return tuple(as_opaque(tool).json for tool in self.codec.tools(self.body))

    def decode(self, start: int = 0, prior: Sequence[Message] = ()) -> list[Message]:
        """Decode the entries from position *start* on, *prior* being the messages before it.

        Raises `FormatError` for an entry of another format than the payload was named to be of.
        """
        decode, messages = self.codec.decode, list[Message]()
        before = Joined(prior, messages) if prior else messages
        entries = self.iter_entries(start)
        if self.is_named and self.head + start < SAMPLE:
            entries = self._check_first(entries, SAMPLE - self.head - start)
        for entry in entries:
            try:
                messages.append(decode(entry, before))
            except FormatError as error:
                at = self.head + start + len(messages)
                raise FormatError(f"entry {at}: {error}") from error
        return messages

    def _check_first(self, entries: Iterator[Wire], count: int) -> Iterator[Wire]:
        """Return *entries*, the first *count* of which look like the format that was named. Raises
        `FormatError` if they do not."""
        first = list(islice(entries, count))
        if first and not self.codec.fits(self.body, first):
            problem = describe_misfit(first)
            raise FormatError(f"these are no entries of {self.codec.NAME}: {problem}")
        return chain(first, entries)

    def encode(
        self,
        pieces: Iterable[slice | Sequence[tuple[Message, int | None]]],
        messages: Sequence[Message],
        forget: Callable[[Wire], Wire] | None = None,
    ) -> Any:
        """Return the payload of a view: unedited runs of *messages*, which were decoded from it,
        and entries made of one message or several, each with the position of the one it stands
        for. *forget* takes out of an entry what refers to what is hidden."""
        encoded = (
            piece
            if isinstance(piece, slice)
            else reduce(self.codec.merge, [self._encode(*each, messages) for each in piece])
            for piece in pieces
        )
        return self.join(self._forget(encoded, forget) if forget else encoded)

    def _forget(
        self, pieces: Iterable[slice | Wire], forget: Callable[[Wire], Wire]
    ) -> Iterator[slice | Wire]:
        for piece in pieces:
            if not isinstance(piece, slice):
                yield forget(piece)
                continue
            for at in range(piece.start, piece.stop):
                entry = self.entry(at)
                new = forget(entry)
                yield slice(at, at + 1) if new is entry else new

    def _encode(self, message: Message, origin: int | None, messages: Sequence[Message]) -> Wire:
        """Encode a message over the entry that it stands for."""
        if origin is None:
            item = self.codec.encode(message)
            turns = (
                at for at in reversed(range(len(messages))) if messages[at].role == "assistant"
            )
            latest = next(turns, -1) if message.role == "assistant" else -1
            return item if latest < 0 else with_reasoning(item, self.entry(latest))
        entry = self.entry(origin)
        return entry if message == messages[origin] else self.codec.patch(entry, message)

    def join(self, pieces: Iterable[slice | Wire]) -> Any:
        """Return the payload with *pieces* as its entries: a slice stands for untouched ones."""
        head = self.head
        moved = (
            slice(p.start + head, p.stop + head) if isinstance(p, slice) else p for p in pieces
        )
        return self.rebuild(chain([slice(0, head)], moved))


def split_payload(
    source: Any, fields: Sequence[str] = FIELDS, lookup: PrefixLookup | None = None
) -> Payload:
    """Open a payload of any kind, its format not recognised yet; an opened one stays as it is.

    *lookup* knows JSON texts that were opened before (`refold.codecs.json_text`).
    Raises `FormatError` when it holds no conversation, in an object in one of *fields*.
    """
    if isinstance(source, Payload):
        return source
    if isinstance(source, bytearray | memoryview):
        source = bytes(source)
    if isinstance(source, bytes | str):
        field, body, entries = split_json(source, fields, lookup)
        return Payload(field, body, entries, partial(join_json, entries))
    if isinstance(source, Mapping):
        return _split_body(source, fields)
    if isinstance(source, Sequence):
        return Payload("", {}, source, partial(_join_list, source))
    kind = type(source).__name__
    raise FormatError(f"a payload is a list of messages, a request body or JSON text, not {kind}")


def _split_body(body: Body, fields: Sequence[str]) -> Payload:
    field = conversation_field(body, fields)
    rest = {key: value for key, value in body.items() if key != field}
    entries = body[field]
    if isinstance(entries, str):
        lone = [entries]
        return Payload(field, rest, lone, lambda out: {**body, field: _join_lone(lone, out)})
    if not isinstance(entries, Sequence):
        raise FormatError(f"{field!r} must be a list of messages, not {type(entries).__name__}")
    return Payload(field, rest, entries, lambda out: {**body, field: _join_list(entries, out)})


def _join_list(entries: Sequence[Any], pieces: Iterable[slice | Any]) -> Any:
    """Return a list, or a tuple if *entries* are one."""
    out = list[Any]()
    for piece in pieces:
        if isinstance(piece, slice):
            out += entries[piece]
        else:
            out.append(piece)
    return tuple(out) if isinstance(entries, tuple) else out


def _join_lone(lone: list[str], pieces: Iterable[slice | Any]) -> Any:
    """Return the lone string again, if it still is the only entry."""
    entries = _join_list(lone, pieces)
    return entries[0] if len(entries) == 1 and isinstance(entries[0], str) else entries


def _load(entry: Any) -> Wire:
    return entry.load() if isinstance(entry, Span) else entry


__all__ = ["Codec", "Wire", "with_rules"]
