"""The wire formats, and which of them a payload is in."""

from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from typing import Any, overload

from refold.codecs import anthropic, gemini, openai_chat, openai_responses
from refold.codecs.blocks import kind_of
from refold.codecs.codec import Codec, Wire
from refold.codecs.json_text import Begin, no_beginning
from refold.codecs.payload import FIELDS, Parcel, Payload, unpack
from refold.errors import FormatError
from refold.messages import Message
from refold.text.summary_wrapper import summary_in

CODECS: tuple[Codec, ...] = (openai_chat, anthropic, openai_responses, gemini)
"""Of formats that fit a payload equally well, the first is meant: a list of plain texts is a chat."""

_LOOKS = (3, 30)
"""Entries looked at first, and then, before all of them."""
_SURE = 3
"""How far the best format must be ahead of the next for the rest not to be looked at."""


def open_payload(payload: Any, format: str | Codec | None = None, begin: Begin = no_beginning) -> Payload:
    """Open a list of messages, a request body, or the JSON text of either (`str` or `bytes`).

    The format is recognised by shape; *format* names it: `openai_chat`, `anthropic`,
    `openai_responses`, `gemini`; a codec of your own, or an adapter's, is given as it is. *begin* knows JSON texts that
    were opened before (`refold.codecs.prefix_cache`). Raises `FormatError`, which says what was tried.
    """
    return envelop(unpack(payload, fields_of(format), begin), format)


def fields_of(format: str | Codec | None) -> tuple[str, ...]:
    """Fields that may hold a conversation: those of our formats, and before them that of a codec of your own."""
    return FIELDS if format is None or isinstance(format, str) else (format.FIELD, *FIELDS)


def envelop(parcel: Parcel, format: str | Codec | None = None) -> Payload:
    """As `open_payload`, for a payload that is unpacked."""
    codec = _recognised(parcel) if format is None else _named(format, parcel)
    head = sum(1 for _ in takewhile(partial(_is_head, codec), Payload(codec, parcel, 0).iter_entries()))
    return Payload(codec, parcel, head)


def _is_head(codec: Codec, item: Wire) -> bool:
    """Is this leading entry the system prompt's? A summary of ours in the system's role is none."""
    return codec.is_system(item) and summary_in(codec.decode(item, ())) is None


def decode_all(envelope: Payload, start: int = 0, prior: Sequence[Message] = ()) -> list[Message]:
    """The messages from position *start* on, *prior* being those before it. Raises `FormatError`."""
    decode, new = envelope.codec.decode, list[Message]()
    seen = _Joined(prior, new) if prior else new
    for item in envelope.iter_entries(start):
        try:
            new.append(decode(item, seen))
        except FormatError as error:
            raise FormatError(f"entry {envelope.head + start + len(new)}: {error}") from error
    return new


class _Joined(Sequence[Message]):
    """Two sequences as one, so that decoding what is added costs what is added."""

    def __init__(self, first: Sequence[Message], second: Sequence[Message]) -> None:
        self._first, self._second = first, second

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index] - len(self._first)
        return self._second[at] if at >= 0 else self._first[at]


def _named(format: str | Codec, parcel: Parcel) -> Codec:
    codec = next((codec for codec in CODECS if format == codec.NAME), None) if isinstance(format, str) else format
    if codec is None:
        raise FormatError(f"no format is called {format!r}; there are {_names(CODECS)}")
    if parcel.field and parcel.field != codec.FIELD:
        raise FormatError(
            f"{codec.NAME} keeps its conversation in {codec.FIELD!r}, and this object has {parcel.field!r}"
        )
    if isinstance(format, str) and (items := _items(parcel, _LOOKS[-1])) and not codec.fits(parcel.body, items):
        raise FormatError(f"these are no entries of {codec.NAME}: {_strange(items)}")
    return codec


def _items(parcel: Parcel, look: int, since: int = 0) -> list[Wire]:
    """The first *look* entries, from position *since* on."""
    whole = Payload(openai_chat, parcel, 0)
    return [whole.entry(at) for at in range(since, min(look, len(whole)))]


def _recognised(parcel: Parcel) -> Codec:
    for look in (look for look in _LOOKS if look < len(parcel.wires)):
        best, sure = _best(parcel, look)
        if sure:
            return best
    return _best(parcel, len(parcel.wires))[0]


def is_certain(parcel: Parcel) -> bool:
    """Do the first entries alone tell the format, so that whatever comes after them changes nothing?"""
    return len(parcel.wires) > _LOOKS[0] and _best(parcel, _LOOKS[0])[1]


def stays(codec: Codec, parcel: Parcel, since: int) -> bool:
    """Does the format that the entries before position *since* are of fit those from there on as well as any?"""
    items = _items(parcel, len(parcel.wires), since)
    scores = _scores(parcel, items)
    return not items or 0 < scores.get(codec.NAME, 0) == max(scores.values())


def _scores(parcel: Parcel, items: Sequence[Wire]) -> dict[str, int]:
    """How well each format fits *items*."""
    return {codec.NAME: codec.fits(parcel.body, items) for codec in _tried(parcel)}


def _tried(parcel: Parcel) -> list[Codec]:
    return [codec for codec in CODECS if parcel.field in ("", codec.FIELD)]


def _best(parcel: Parcel, look: int) -> tuple[Codec, bool]:
    """The format that fits the first *look* entries best, and whether it is far enough ahead. Raises `FormatError`."""
    items = _items(parcel, look)
    if any(hasattr(item, "additional_kwargs") for item in items):
        raise FormatError("messages of LangChain's: give format=refold.adapters.langchain")
    tried, scores = _tried(parcel), _scores(parcel, items)
    ranked = sorted((c for c in tried if scores[c.NAME]), key=lambda c: -scores[c.NAME])
    if not ranked:
        raise FormatError(f"entries of no known format ({_names(tried)} were tried): {_strange(items)}")
    return ranked[0], len(ranked) == 1 or scores[ranked[0].NAME] - scores[ranked[1].NAME] >= _SURE


def _names(codecs: Sequence[Codec]) -> str:
    return ", ".join(codec.NAME for codec in codecs)


def _strange(items: Sequence[Wire]) -> str:
    """Why no format fits: the first entry that is no object, or the fields of the first entry."""
    for at, item in enumerate(items):
        if not isinstance(item, dict | str):
            return f"entry {at} is {kind_of(item)}"
    first = items[0] if items else None
    return f"entry 0 has the fields {', '.join(map(repr, list(first)[:8]))}" if isinstance(first, dict) else "strings"
