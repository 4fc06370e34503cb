"""Detection of a payload's wire format."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, takewhile
from typing import Any

from refold.codecs import anthropic, bedrock, gemini, openai_chat, openai_responses
from refold.codecs.blocks import describe_misfit
from refold.codecs.codec import (
    FIELDS,
    SAMPLE,
    Codec,
    Payload,
    Wire,
    split_payload,
    with_rules,
)
from refold.codecs.json_text import PrefixLookup
from refold.errors import FormatError
from refold.messages import Media, Message, Text, ToolResult
from refold.text.summary_wrapper import summary_in

CODECS: tuple[Codec, ...] = (openai_chat, anthropic, openai_responses, gemini, bedrock)
"""All codecs. Of those that fit equally well the first is used: messages of text are a chat."""

_CODEC_NAMES = [name for name in vars(Codec) if not name.startswith("_")]
_LOOKS = (3, SAMPLE)
"""Numbers of entries that are tried first; all are read only if these do not decide."""
_CLEAR_LEAD = 3
"""Minimum lead of the best format, in points, that makes reading more entries unnecessary."""


def open_payload(
    source: Any, format: str | Codec | None = None, lookup: PrefixLookup | None = None
) -> Payload:
    """Open a list of messages, a request body, or the JSON text of either (`str` or `bytes`).

    The format is recognised by shape, or given by *format*: `openai_chat`, `anthropic`,
    `openai_responses`, `gemini`, `bedrock`, or a codec of your own or of an adapter. *lookup* finds
    JSON texts that were opened before (`refold.codecs.json_text`). Raises `FormatError`, which
    tells what was tried.
    """
    return recognize(split_payload(source, fields_of(format), lookup), format)


def fields_of(format: str | Codec | None) -> tuple[str, ...]:
    """Return the fields that may hold a conversation, that of *format* first. Raise `FormatError`
    for an unknown name."""
    if isinstance(format, str):
        format = _by_name(format)
    missing = [name for name in _CODEC_NAMES if not hasattr(format, name)]
    if format is not None and missing:
        raise FormatError(f"{format!r} is no codec: it has no {', '.join(missing)}")
    return FIELDS if format is None else (format.FIELD, *FIELDS)


def recognize(payload: Payload, format: str | Codec | None = None) -> Payload:
    """Return *payload* with its codec and the number of its leading system entries. Raises as
    `open_payload`."""
    codec = _detect(payload) if format is None else _codec_named(format, payload)

    def is_head(entry: Wire) -> bool:  # Refold's summaries with the role system are excluded
        return codec.is_system(entry) and summary_in(codec.decode(entry, ())) is None

    head = sum(1 for _ in takewhile(is_head, payload.iter_entries(-payload.head)))
    return payload.read_by(codec, head, is_named=isinstance(format, str))


def _codec_named(format: str | Codec, payload: Payload) -> Codec:
    """Return the codec of this name; `Payload.decode` checks the entries."""
    codec = format if not isinstance(format, str) else _by_name(format)
    if payload.field and payload.field != codec.FIELD:
        raise FormatError(
            f"{codec.NAME} keeps its conversation in {codec.FIELD!r}, "
            f"and this object has {payload.field!r}"
        )
    return codec


def _by_name(name: str) -> Codec:
    for codec in CODECS:
        if name == codec.NAME:
            return codec
    raise FormatError(f"no format is called {name!r}; there are {_names(CODECS)}")


# --- recognising ----------------------------------------------------------------------------


def _detect(payload: Payload) -> Codec:
    for limit in (limit for limit in _LOOKS if limit < len(payload)):
        codec, leads_clearly = _best(payload, limit)
        if leads_clearly:
            return codec
    return _best(payload, len(payload))[0]


def is_certain(payload: Payload) -> bool:
    """Return whether there are more than three entries and the first three determine the format."""
    payload = replace(payload, head=0)
    return len(payload) > _LOOKS[0] and _best(payload, _LOOKS[0])[1]


def still_fits(codec: Codec, payload: Payload, start: int) -> bool:
    """Return whether *codec* fits the raw entries from *start* on as well as any other; True if
    there are none."""
    entries = list(replace(payload, head=0).iter_entries(start))
    scores = _scores(payload, entries)
    return not entries or 0 < scores.get(codec.NAME, 0) == max(scores.values())


def _best(payload: Payload, limit: int) -> tuple[Codec, bool]:
    """Return the format that fits the first *limit* entries best, and whether it leads clearly.

    Raises `FormatError` if none fits.
    """
    entries = list(islice(payload.iter_entries(), limit))
    if any(hasattr(entry, "additional_kwargs") for entry in entries):
        raise FormatError("messages of LangChain's: give format=refold.adapters.langchain")
    candidates, scores = _candidates(payload), _scores(payload, entries)
    ranked = sorted((c for c in candidates if scores[c.NAME]), key=lambda c: -scores[c.NAME])
    if not ranked:
        tried = _names(candidates)
        raise FormatError(
            f"entries of no known format ({tried} were tried): {describe_misfit(entries)}"
        )
    best, *rest = ranked
    return best, not rest or scores[best.NAME] - scores[rest[0].NAME] >= _CLEAR_LEAD


def _scores(payload: Payload, entries: Sequence[Wire]) -> dict[str, int]:
    """Return how well each format fits *entries*."""
    return {codec.NAME: codec.fits(payload.body, entries) for codec in _candidates(payload)}


def _candidates(payload: Payload) -> list[Codec]:
    return [codec for codec in CODECS if payload.field in ("", codec.FIELD)]


def _names(codecs: Sequence[Codec]) -> str:
    return ", ".join(codec.NAME for codec in codecs)


def rebuild_entries(name: str, messages: Sequence[Message]) -> tuple[Codec, list[Wire]]:
    """Return a codec of the format *name* and new entries for *messages* whose own are lost. The
    codec decodes the entries to these messages. Notes replace embedded media, whose bytes are
    lost."""
    codec = next(codec for codec in CODECS if name == codec.NAME)
    rebuilt: Any = with_rules(codec, codec.rules)
    rebuilt.decode = lambda _, prior: messages[len(prior)]
    return rebuilt, [_encode_noting_media(codec, message) for message in messages]


def _encode_noting_media(codec: Codec, message: Message) -> Wire:
    try:
        return codec.encode(message)
    except FormatError:
        return codec.encode(replace(message, parts=tuple(map(_note_media, message.parts))))


def _note_media(part: Any) -> Any:
    match part:
        case Media(kind):
            return Text(f"[{kind}: its bytes are not recorded]")
        case ToolResult(_, content):
            return replace(part, content=tuple(map(_note_media, content)))
    return part
