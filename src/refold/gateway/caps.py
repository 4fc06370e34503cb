"""The cap of a request's output, in the field of its API; lowered in the JSON text where it stands."""

from collections.abc import Mapping
from json.decoder import WHITESPACE, JSONDecoder  # type: ignore[attr-defined]
from typing import Any, NamedTuple

LEAST = 1_024
"""The lowest cap that is set: below it an answer says nothing."""
_FIELDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "anthropic": (("max_tokens",),),
    "openai_chat": (("max_completion_tokens",), ("max_tokens",)),
    "openai_responses": (("max_output_tokens",),),
    "gemini": (("generationConfig", "maxOutputTokens"), ("generation_config", "max_output_tokens")),
}
_decoder = JSONDecoder(strict=False)


class Cap(NamedTuple):
    """A cap of output tokens, and where it stands."""

    path: tuple[str, ...]
    tokens: int


def cap_of(api: str, body: Mapping[str, Any]) -> Cap | None:
    """The cap that a request states."""
    for path in _FIELDS.get(api, ()):
        value: Any = body
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return Cap(path, value)
    return None


def lowered(api: str, body: Mapping[str, Any], tokens: int, window: int) -> Cap | None:
    """The cap that lets a request of *tokens* and its answer fit *window*; None where the stated one does,
    and where no sensible one would. Thinking that is promised a budget keeps it and a little room."""
    cap = cap_of(api, body)
    if cap is None or tokens + cap.tokens <= window:
        return None
    room = window - tokens
    if room < max(LEAST, _promised(body) + LEAST) or room >= cap.tokens:
        return None
    return Cap(cap.path, room)


def written(source: bytes, cap: Cap) -> bytes:
    """The JSON text *source* with another figure at the cap's place, and no other byte changed. Raises ValueError."""
    text = source.decode("latin-1")
    start, stop = 0, len(text)
    for name in cap.path:
        start, stop = _field(text, start, name)
    return source[:start] + str(cap.tokens).encode() + source[stop:]


def _promised(body: Mapping[str, Any]) -> int:
    thinking = body.get("thinking")
    value = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else 0
    return value if isinstance(value, int) else 0


def _field(text: str, at: int, name: str) -> tuple[int, int]:
    """Where the value of a field of the object at *at* stands; of several of one name the last, as parsers do."""
    at = _skip(text, at + text[at : at + 3].startswith("\xef\xbb\xbf") * 3)
    if text[at] != "{":
        raise ValueError("no object")
    found, at = (0, 0), _skip(text, at + 1)
    while text[at] != "}":
        key, at = _decoder.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, at = _decoder.raw_decode(text, start)
        found = (start, at) if key == name else found
        at = _skip(text, at)
        at = _skip(text, at + 1) if text[at] == "," else at
    if found == (0, 0):
        raise ValueError(f"no field {name!r}")
    return found


def _skip(text: str, at: int) -> int:
    return WHITESPACE.match(text, at).end()  # type: ignore[no-any-return]
