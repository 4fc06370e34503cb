"""The cap of a request's output, in the field of its API; lowered in the JSON text where it stands."""

from collections.abc import Iterable, Mapping
from itertools import product
from json.decoder import WHITESPACE, JSONDecoder  # type: ignore[attr-defined]
from typing import Any, NamedTuple

SMALLEST_CAP = 1_024
"""The lowest cap that is set: below it an answer says nothing."""
_FIELDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "anthropic": (("max_tokens",),),
    "openai_chat": (("max_completion_tokens",), ("max_tokens",)),
    "openai_responses": (("max_output_tokens",),),
    "gemini": tuple(
        product(("generationConfig", "generation_config"), ("maxOutputTokens", "max_output_tokens"))
    ),
}
_THINKING_FIELDS = (("thinking", "budget_tokens"), ("reasoning", "max_tokens"))
"""Where Anthropic and OpenRouter are told what thinking may have of the answer: less than its cap."""
_decoder = JSONDecoder(strict=False)


class Cap(NamedTuple):
    """A cap of output tokens, and where it stands."""

    path: tuple[str, ...]
    tokens: int


def read_cap(api: str, body: Mapping[str, Any]) -> Cap | None:
    """The cap that a request states."""
    return _first_figure(body, _FIELDS.get(api, ()))


def thinking_budget(body: Mapping[str, Any]) -> int:
    """Tokens of an answer that are promised to thinking; 0 where the request says nothing of it."""
    budget = _first_figure(body, _THINKING_FIELDS)
    return budget.tokens if budget else 0


def lower_cap(api: str, body: Mapping[str, Any], tokens: int, window: int) -> Cap | None:
    """The cap that lets a request of *tokens* and its answer fit *window*; None where the stated one does,
    and where no sensible one would. Thinking that is promised a budget keeps it and a little room."""
    return next(iter(fit_caps(api, body, window - tokens)), None)


def fit_caps(api: str, body: Mapping[str, Any], room: int, keep: float = 1.0) -> tuple[Cap, ...]:
    """What must change for an answer to have *room* tokens at most: the cap, and where need be the budget of thinking,
    which providers refuse if it does not stay below the cap. Empty where no cap is stated, where it fits as it is, and
    where too little would be left: `SMALLEST_CAP` tokens, or the share *keep* of what thinking was promised."""
    cap, budget = read_cap(api, body), _first_figure(body, _THINKING_FIELDS)
    if cap is None or not SMALLEST_CAP <= room < cap.tokens:
        return ()
    if budget is None or budget.tokens + SMALLEST_CAP <= room:
        return (cap._replace(tokens=room),)
    if room - SMALLEST_CAP < max(SMALLEST_CAP, keep * budget.tokens):
        return ()
    return cap._replace(tokens=room), budget._replace(tokens=room - SMALLEST_CAP)


def write_cap(source: bytes, cap: Cap) -> bytes:
    """The JSON text *source* with another figure at the cap's place, and no other byte changed. Raises ValueError."""
    text = source.decode("latin-1")
    start, stop = 0, len(text)
    for name in cap.path:
        start, stop = _find_field(text, start, name)
    return source[:start] + str(cap.tokens).encode() + source[stop:]


def _first_figure(body: Mapping[str, Any], paths: Iterable[tuple[str, ...]]) -> Cap | None:
    """The first of these fields that holds a number of tokens."""
    for path in paths:
        value: Any = body
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        whole = type(value) is int or (isinstance(value, float) and value.is_integer())
        if whole and value > 0:
            return Cap(path, int(value))
    return None


def _find_field(text: str, at: int, name: str) -> tuple[int, int]:
    """Where the value of a field of the object at *at* stands; of several of one name the last, as parsers do."""
    at = _skip_space(text, at + text[at : at + 3].startswith("\xef\xbb\xbf") * 3)
    if text[at] != "{":
        raise ValueError("no object")
    found, at = (0, 0), _skip_space(text, at + 1)
    while text[at] != "}":
        key, at = _decoder.raw_decode(text, at)
        start = _skip_space(text, _skip_space(text, at) + 1)
        _, at = _decoder.raw_decode(text, start)
        found = (start, at) if key == name else found
        at = _skip_space(text, at)
        at = _skip_space(text, at + 1) if text[at] == "," else at
    if found == (0, 0):
        raise ValueError(f"no field {name!r}")
    return found


def _skip_space(text: str, at: int) -> int:
    return WHITESPACE.match(text, at).end()  # type: ignore[no-any-return]
