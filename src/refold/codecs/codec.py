"""The interface of a wire format, and an opened payload. A codec is a module or any object with
these names."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from importlib import import_module
from itertools import chain, islice
from types import ModuleType, SimpleNamespace
from typing import Any, Protocol, cast

from refold.codecs.blocks import as_list, as_opaque, describe_misfit, with_reasoning
from refold.codecs.json_text import PrefixLookup, Span, conversation_field, join_json, split_json
from refold.errors import FormatError
from refold.messages import Message, Part
from refold.rules.request import Body
from refold.rules.rule import Rules
from refold.transcript import Joined

Wire = Any
"""Entry of a request's list of messages, as parsed from JSON."""


class Codec(Protocol):
    """Wire format. All functions are pure and do not change their arguments."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module constant
        """`anthropic`, `openai_chat`, `openai_responses`, `gemini` or `bedrock`."""

    @property
    def FIELD(self) -> str:  # noqa: N802 - a module constant
        """Body field of the conversation, such as `messages`, `input` or `contents`."""

    def rules(self, body: Body) -> Rules:
        """Return the rules of this API for the model that *body* names (`{}` for a bare list)."""

    def fits(self, body: Body, items: Sequence[Wire]) -> int:
        """Rate how well a payload fits this format: 0 is impossible, 1 is possible, more is
        surer."""

    def is_system(self, item: Wire) -> bool:
        """Return whether a leading entry belongs to the head (system prompt), outside the
        transcript."""

    def system(self, body: Body) -> tuple[Part, ...]:
        """Return the system prompt from fields other than the conversation."""

    def tools(self, body: Body) -> Iterable[Any]:
        """Return the tool definitions, as parsed from JSON."""

    def decode(self, item: Wire, prior: Sequence[Message]) -> Message:
        """Decode one entry; *prior* are the messages decoded before it.

        Raises `FormatError` if *item* is not even of the right JSON type.
        """

    def encode(self, message: Message) -> Wire:
        """Encode a message without an original entry, such as a summary."""

    def patch(self, item: Wire, message: Message) -> Wire:
        """Change *item* as little as possible to express *message*; unknown fields stay."""

    def merge(self, first: Wire, second: Wire) -> Wire:
        """Merge two neighbouring entries of one role."""


def with_rules(codec: Codec, rules: Callable[[Body], Rules]) -> Codec:
    """Return *codec* with other *rules*: of an account, a more lenient server, or your own.

    Call it once and keep the result: two results are two formats.
    """
    names = [name for name in vars(Codec) if not name.startswith("_")]
    return cast(
        "Codec",
        SimpleNamespace(**{name: getattr(codec, name) for name in names} | {"rules": rules}),
    )


# --- shared by several formats: `tools = read_tools` in a codec -----------------------------------


def read_tools(body: Body) -> Sequence[Any]:
    """Return the tool definitions in the field `tools`; none if it is no list."""
    return as_list(body.get("tools"))


def no_system(body: Body) -> tuple[Part, ...]:  # noqa: ARG001 - a codec's
    """Return nothing, for formats with the system prompt in leading messages."""
    return ()


def has_system_role(item: Wire) -> bool:
    """Return whether an entry is a message of the role `system`."""
    return isinstance(item, dict) and item.get("role") == "system"


# --- an opened payload --------------------------------------------------------------------------

FIELDS = ("messages", "input", "contents")
"""Fields that hold a conversation in the known formats."""
SAMPLE = 30
"""Number of entries that usually suffice to recognise a format."""


@dataclass(frozen=True, slots=True)
class Payload:
    """Opened payload. Positions count from the first entry after the head."""

    field: str
    """Field of the entries; empty for a bare list."""
    body: Body
    """All other fields, parsed."""
    raw_entries: Sequence[Any]
    """Entries including the head: parsed objects, or spans of a JSON text."""
    rebuild: Callable[[Iterable[slice | Any]], Any]
    """Builds the payload with new raw entries; a slice stands for original entries."""
    codec: Codec = None  # type: ignore[assignment]  # set by `refold.codecs.detect.recognize`
    head: int = 0
    """Number of leading system entries, which are not part of the transcript."""
    is_named: bool = False
    """Whether the format was named by the caller, so that its entries have to be checked."""

    def read_by(self, codec: Codec, head: int, *, is_named: bool = False) -> "Payload":
        """Return this payload with a *codec* and the length of its head."""
        # `replace` takes twice as long, and this runs on each turn.
        opened = self.field, self.body, self.raw_entries, self.rebuild
        return Payload(*opened, codec, head, is_named)

    def __len__(self) -> int:
        return len(self.raw_entries) - self.head

    def __reduce__(self) -> tuple[Any, ...]:
        codec = self.codec.__name__ if isinstance(self.codec, ModuleType) else self.codec
        opened = self.field, self.body, self.raw_entries, self.rebuild
        return _unpickle, (codec, *opened, None, self.head, self.is_named)

    def entry(self, index: int) -> Wire:
        """Parse the entry at *index*."""
        return _load(self.raw_entries[self.head + index])

    def iter_entries(self, start: int = 0) -> Iterator[Wire]:
        """Parse the entries from *start* on, one at a time."""
        entries = self.raw_entries
        return (_load(entries[at]) for at in range(self.head + start, len(entries)))

    @property
    def full_body(self) -> Body:
        """The request, fully parsed; only the conversation for a bare list."""
        return {**self.body, self.codec.FIELD: list(map(_load, self.raw_entries))}

    @property
    def system(self) -> tuple[Part, ...]:
        """The system prompt from the head and other fields."""
        head = (self.codec.decode(_load(entry), ()) for entry in self.raw_entries[: self.head])
        return (*self.codec.system(self.body), *chain.from_iterable(m.parts for m in head))

    @property
    def tools(self) -> tuple[str, ...]:
        """Tool definitions, each as canonical JSON."""
        return tuple(as_opaque(tool).json for tool in self.codec.tools(self.body))

    def decode(self, start: int = 0, prior: Sequence[Message] = ()) -> list[Message]:
        """Decode the entries from *start* on; *prior* are the messages before it.

        Raises `FormatError` for entries that do not fit the named format.
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
        """Return *entries*. Raises `FormatError` if the first *count* do not fit the format."""
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
        """Return the payload of a view.

        *pieces* are slices of unedited *messages*, which were decoded from this payload, and
        entries made of one or more messages, each with the position of the entry that it replaces,
        or None. *forget* removes references to hidden messages from an entry.
        """
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
        """Encode a message: patch its original entry, or make a new one, with the reasoning field
        that the latest turn has (DS-1)."""
        if origin is None:
            item = self.codec.encode(message)
            backwards = reversed(range(len(messages)))
            turns = (at for at in backwards if messages[at].role == "assistant")
            latest = next(turns, -1) if message.role == "assistant" else -1
            return item if latest < 0 else with_reasoning(item, self.entry(latest))
        entry = self.entry(origin)
        return entry if message == messages[origin] else self.codec.patch(entry, message)

    def join(self, pieces: Iterable[slice | Wire]) -> Any:
        """Return the payload with *pieces* as its entries; a slice stands for original ones."""
        at = self.head
        moved = (slice(p.start + at, p.stop + at) if isinstance(p, slice) else p for p in pieces)
        return self.rebuild(chain([slice(0, at)], moved))


def split_payload(
    source: Any, fields: Sequence[str] = FIELDS, lookup: PrefixLookup | None = None
) -> Payload:
    """Open a payload of any kind without recognising its format. An opened one is returned
    unchanged.

    *lookup* finds JSON texts that were opened before (`refold.codecs.json_text`). Raises
    `FormatError` if there is no conversation: an object must have one of *fields*.
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
    entries = [body[field]] if isinstance(body[field], str) else body[field]
    if not isinstance(entries, Sequence):
        raise FormatError(f"{field!r} must be a list of messages, not {type(entries).__name__}")
    return Payload(field, rest, entries, partial(_join_body, body, field, entries))


def _join_body(body: Body, field: str, entries: Any, pieces: Iterable[slice | Any]) -> Body:
    """Return the body. A lone string stays one if a string is still the only entry."""
    new = _join_list(entries, pieces)
    is_lone = isinstance(body[field], str) and list(map(type, new)) == [str]
    return {**body, field: new[0] if is_lone else new}


def _join_list(entries: Sequence[Any], pieces: Iterable[slice | Any]) -> Any:
    """Return a list, or a tuple if *entries* is one."""
    out = list[Any]()
    for piece in pieces:
        if isinstance(piece, slice):
            out += entries[piece]
        else:
            out.append(piece)
    return tuple(out) if isinstance(entries, tuple) else out


def _unpickle(codec: Any, *fields: Any) -> Payload:
    codec = import_module(codec) if isinstance(codec, str) else codec
    return replace(Payload(*fields), codec=codec)


def _load(entry: Any) -> Wire:
    return entry.load() if isinstance(entry, Span) else entry


__all__ = ["Codec", "Wire", "with_rules"]
