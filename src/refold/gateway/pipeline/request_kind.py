"""Kinds of requests, read from their fields, and changes to these fields before sending.

Auxiliary requests (titles, classifiers, memory agents, a client's own compaction) are recognised by
headers and fields, and by known phrases of their instructions. Any others usually have different
tools or another session key, and so become a conversation of their own.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from json.decoder import WHITESPACE, JSONDecoder  # type: ignore[attr-defined]
from typing import Any, Literal, NamedTuple, NoReturn

from refold.codecs.codec import Payload
from refold.gateway.exchange import (
    APIS,
    GatewayResponse,
    Headers,
    Incoming,
    Outgoing,
    is_auxiliary,
    provider_error,
)
from refold.gateway.http.request import request_model
from refold.gateway.settings import Settings
from refold.messages import Message, Opaque, Text
from refold.rules.openai_responses import SERVER_HELD
from refold.speakers.carriers import SUMMARY_WORDS
from refold.text.json_values import dig, parse_or_none
from refold.transcript import hash_message

# --- kinds ----------------------------------------------------------------------------------------


RequestKind = Literal["", "compaction", "title", "classifier", "memory", "prewarm"]
"""Purpose of an auxiliary request; empty for a conversation's own request."""

MAX_INSTRUCTION = 3_000
"""Characters of each text that are searched, from its start."""

USER_WORDS: tuple[tuple[str, RequestKind], ...] = (
    ("CONTEXT CHECKPOINT COMPACTION", "compaction"),  # Codex, Mistral Vibe
    (
        "Your task is to create a detailed summary of the conversation so far",
        "compaction",
    ),  # Claude Code
    ("Your task is to create a detailed summary of the RECENT portion", "compaction"),
    ("You are about to run out of context. Create a handoff summary", "compaction"),  # Kimi Code
    (
        "You are the component that summarizes a conversation when its context window",
        "compaction",
    ),  # Qwen Code
    ("Critically evaluate the <state_snapshot> you just generated", "compaction"),  # Gemini CLI
    ("generate the <state_snapshot>", "compaction"),
    ("generate the updated <state_snapshot>", "compaction"),
    ("produce the <state_snapshot> XML", "compaction"),
    ("The messages above are a conversation to summarize", "compaction"),  # pi
    ("Provide a detailed prompt for continuing our conversation above", "compaction"),  # OpenCode
    ("*Briefly* summarize this partial conversation", "compaction"),  # aider
    ("Please provide a concise summary of our conversation", "compaction"),  # Continue
    ("Managed memory has TWO directories", "memory"),  # Qwen Code
    ("Generate a title for this conversation", "title"),  # OpenCode
)
"""Phrases near the start of the last user message, with the kind that they indicate."""

SYSTEM_WORDS: tuple[tuple[str, RequestKind], ...] = (
    ("You are a title generator", "title"),  # OpenCode
    ("Generate a concise, sentence-case title", "title"),  # Claude Code
    ("generates concise, one-line Git commit messages", "title"),  # aider
    ("component responsible for distilling chat history", "compaction"),  # Gemini CLI
    ("component that summarizes a conversation when its context window", "compaction"),  # Qwen Code
    ("You are a context summarization", "compaction"),  # pi, OpenCode
    ("summarizing conversations", "compaction"),
    ("*Briefly* summarize this partial conversation", "compaction"),  # aider
    ("managed memory extraction subagent", "memory"),  # Qwen Code
)
"""Phrases of the system prompt, with the kind that they indicate."""


def request_kind(incoming: Incoming, payload: Payload) -> RequestKind:
    """Return the kind of an auxiliary request as far as it shows; else an empty string. A
    classifier's has a transcript in tags and no tools. *payload* must not be empty."""
    if payload.body.get("generate") is False:
        return "prewarm"
    metadata = incoming.header("x-codex-turn-metadata")
    if metadata and dig(parse_or_none(metadata), "request_kind") == "compaction":
        return "compaction"
    last: Message = payload.codec.decode(payload.entry(len(payload) - 1), ())
    if any(isinstance(part, Opaque) and part.kind == "compaction_trigger" for part in last.parts):
        return "compaction"
    texts = list(_texts(last.parts))
    kind = _match_words(texts, USER_WORDS) if last.role == "user" else ""
    if kind := kind or _match_words(_texts(payload.system), SYSTEM_WORDS):
        return kind
    is_about_transcript = texts[:1] and texts[0].startswith("<transcript>") and not payload.tools
    return "classifier" if is_about_transcript else ""


def is_added_summary_request(before: Sequence[Message], after: Sequence[Message]) -> bool:
    """Return whether the last message of *after* repeats the one at its position in *before* and
    adds texts about a summary.

    Clients do so to ask for a compaction in words that are not in the tables. A person who goes
    back and adds something writes about something else.
    """
    at = len(after) - 1
    if (
        not 0 <= at < len(before)
        or not before[at].results
        or hash_message(before[at]) == hash_message(after[at])
    ):
        return False
    old, new = before[at].parts, after[at].parts
    added = [part.text for part in new[len(old) :] if isinstance(part, Text)]
    is_addition = old == new[: len(old)] and bool(added) and len(added) == len(new) - len(old)
    return is_addition and any(SUMMARY_WORDS.search(text[:MAX_INSTRUCTION]) for text in added)


def _texts(parts: Any) -> Iterator[str]:
    return (part.text[:MAX_INSTRUCTION] for part in parts if isinstance(part, Text))


def _match_words(texts: Iterable[str], table: tuple[tuple[str, RequestKind], ...]) -> RequestKind:
    text = "\n".join(texts)
    return next((kind for words, kind in table if words in text), "")


# --- histories that a provider holds --------------------------------------------------------------


_HISTORY_FIELDS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("thread",),
    "openai_responses": SERVER_HELD,
    "gemini": ("cachedContent", "cached_content"),
}


def server_history_field(api: str, body: Mapping[str, Any]) -> str:
    """Return the field by which a request refers to a history held by its provider; empty if there
    is none."""
    names = _HISTORY_FIELDS.get(api, ())
    return next((name for name in names if body.get(name) not in (None, "")), "")


def refuse_server_history(field: str, body: Mapping[str, Any]) -> GatewayResponse | None:
    """Return the error that makes a client send its full history from now on; None if there is
    none.

    The Anthropic SDK drops `thread` if threads are not supported. A client that sends
    `previous_response_id` is told that there is no such response.
    """
    if field == "thread":
        message = "message threads are not supported here"
        details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
        return provider_error("anthropic", 400, message, details=details)
    if field == "previous_response_id":
        message = f"Previous response with id '{body.get(field)}' not found."
        code = "previous_response_not_found"
        return provider_error("openai_responses", 400, message, param=field, code=code)
    return None


# --- light requests -------------------------------------------------------------------------------


EDITABLE_MARKERS = (
    b"tool_result",
    b'"tool"',
    b'"function"',
    b'_output"',
    b"unction_response",
    b"unctionResponse",
    b"ignature",
    b"encrypted_content",
    b"compaction",
)
"""Substrings, at least one of which is in the body of any conversation with tool results, signed
thinking or a provider's compaction, in any API. If a client hides them by escapes, its request
passes unchanged."""


def parse_light_body(incoming: Incoming, settings: Settings) -> Mapping[str, Any] | None:
    """Return the body of a light request; None for any other.

    A light request has at most `Settings.read_above_bytes` bytes, carries its whole history, and
    holds nothing that a default local strategy would edit, so passing it unread decides nothing for
    later.
    """
    source = incoming.body
    if (
        len(source) > settings.read_above_bytes
        or settings.strategies is not None
        or incoming.api in settings.native
    ):
        return None
    for sign in EDITABLE_MARKERS:
        if sign in source:
            return None
    try:
        body = json.loads(source.decode())  # decoded, so that json need not detect the encoding
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) and not server_history_field(incoming.api, body) else None


def pass_light_request(
    incoming: Incoming, settings: Settings, fits: Callable[[Incoming, str, Mapping[str, Any]], bool]
) -> Outgoing | None:
    """Return the unchanged request if it is light and *fits* (`ModelLimits.fits`); else None."""
    if incoming.api not in APIS or is_auxiliary(incoming.path):
        return None
    body = parse_light_body(incoming, settings)
    if body is None:
        return None
    model = request_model(incoming.path, body)
    if not fits(incoming, model, body):
        return None
    return Outgoing(incoming.body, reason="light", model=model)


# --- fields that are changed ----------------------------------------------------------------------
# The output cap and a provider's own clearing are changed or added in a request's JSON text; no
# other byte changes.
#
# A provider's own clearing only edits what the model reads. The client's history, and what signed
# thinking is bound to, stay unchanged. That is the sanctioned way to clear results for models that
# bind thinking.

SMALLEST_CAP = 1_024
"""Lowest output cap that is set. Shorter answers are useless."""
_CAP_FIELDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "anthropic": (("max_tokens",),),
    "openai_chat": (("max_completion_tokens",), ("max_tokens",)),
    "openai_responses": (("max_output_tokens",),),
    "gemini": tuple(
        product(("generationConfig", "generation_config"), ("maxOutputTokens", "max_output_tokens"))
    ),
}
_THINKING_FIELDS = (("thinking", "budget_tokens"), ("reasoning", "max_tokens"))
"""Paths of the thinking budget for Anthropic and OpenRouter. It must be below the output cap."""
_decoder = JSONDecoder(strict=False)


class Cap(NamedTuple):
    """An output cap in tokens and its JSON path."""

    path: tuple[str, ...]
    tokens: int


def read_cap(api: str, body: Mapping[str, Any]) -> Cap | None:
    """Return a request's output cap; None if it has none above 0."""
    return _first_figure(body, _CAP_FIELDS.get(api, ()))


def thinking_budget(body: Mapping[str, Any]) -> int:
    """Return the tokens of an answer that are reserved for thinking; 0 if the request names
    none."""
    budget = _first_figure(body, _THINKING_FIELDS)
    return budget.tokens if budget else 0


def lower_caps(api: str, body: Mapping[str, Any], room: int, keep: float = 1.0) -> tuple[Cap, ...]:
    """Return the caps to write so that an answer has at most *room* tokens.

    These are the output cap and, if necessary, the thinking budget, which providers refuse unless
    it is below the cap. Empty if there is no cap, if it fits already, or if too little would
    remain: under `SMALLEST_CAP` tokens, or under the share *keep* of the thinking budget.
    """
    cap, budget = read_cap(api, body), _first_figure(body, _THINKING_FIELDS)
    if cap is None or not SMALLEST_CAP <= room < cap.tokens:
        return ()
    if budget is None or budget.tokens + SMALLEST_CAP <= room:
        return (cap._replace(tokens=room),)
    if room - SMALLEST_CAP < max(SMALLEST_CAP, keep * budget.tokens):
        return ()
    return cap._replace(tokens=room), budget._replace(tokens=room - SMALLEST_CAP)


def write_caps(source: bytes, caps: Iterable[Cap]) -> bytes:
    """Return the JSON text *source* with the values of *caps* written into it. Raises ValueError if
    it lacks one of their fields."""
    for cap in caps:
        text = source.decode("latin-1")
        start, stop = 0, len(text)
        for name in cap.path:
            start, stop = _find_field(text, start, name)
        source = source[:start] + str(cap.tokens).encode() + source[stop:]
    return source


def _first_figure(body: Mapping[str, Any], paths: Iterable[tuple[str, ...]]) -> Cap | None:
    """Return the first of these fields that holds a whole number above 0; None if none does."""
    for path in paths:
        value = dig(body, *path)
        is_whole = type(value) is int or (isinstance(value, float) and value.is_integer())
        if is_whole and value > 0:
            return Cap(path, int(value))
    return None


def _find_field(text: str, at: int, name: str) -> tuple[int, int]:
    """Return start and end of a field's value in the object at *at*. Of duplicate keys the last
    counts, as in parsers."""
    at = _skip_space(text, at + text[at : at + 3].startswith("\xef\xbb\xbf") * 3)
    if text[at] != "{":
        raise ValueError("no object")
    place, at = (0, 0), _skip_space(text, at + 1)
    while text[at] != "}":
        key, at = _decoder.raw_decode(text, at)
        start = _skip_space(text, _skip_space(text, at) + 1)
        _, at = _decoder.raw_decode(text, start)
        place = (start, at) if key == name else place
        at = _skip_space(text, at)
        at = _skip_space(text, at + 1) if text[at] == "," else at
    if place == (0, 0):
        raise ValueError(f"no field {name!r}")
    return place


def _skip_space(text: str, at: int) -> int:
    return WHITESPACE.match(text, at).end()  # type: ignore[no-any-return]


BETAS: Mapping[str, str] = {
    "clear_tool_uses_20250919": "context-management-2025-06-27",
    "clear_thinking_20251015": "context-management-2025-06-27",
    "compact_20260112": "compact-2026-01-12",
}
"""Anthropic beta that each of its edits requires."""


def add_native_fields(
    incoming: Incoming, body: Mapping[str, Any], source: bytes, fields: Mapping[str, Any]
) -> tuple[bytes, Headers]:
    """Return *source* with those of *fields* that *body* lacks added at its start, and the headers
    that override the request's own.

    *source* is what is sent for *incoming*, *body* its parsed fields.
    """
    new = {name: value for name, value in fields.items() if name not in body}
    return (prepend_fields(source, new), _beta_headers(incoming, new)) if new else (source, ())


def prepend_fields(source: bytes, fields: Mapping[str, Any]) -> bytes:
    """Return the JSON object *source*, which must not be empty, with *fields* before its own."""
    at = source.index(b"{") + 1
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))[1:-1]
    return source[:at] + text.encode() + b"," + source[at:]


def _beta_headers(incoming: Incoming, new: Mapping[str, Any]) -> Headers:
    """Return the `anthropic-beta` header that the edits require; empty for other APIs."""
    value = new.get("context_management")
    edits = (
        value.get("edits", ()) if incoming.api == "anthropic" and isinstance(value, Mapping) else ()
    )
    # repeated headers are one list (RFC 9110, 5.3)
    own = ",".join(value for name, value in incoming.headers if name == "anthropic-beta")
    betas = [name.strip() for name in own.split(",") if name.strip()]
    need = sorted({BETAS[edit["type"]] for edit in edits if edit.get("type") in BETAS} - set(betas))
    return (("anthropic-beta", ",".join([*betas, *need])),) if need else ()


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOT_STRICT = re.compile(rb"[\x00-\x1f]|NaN|Infinity|\\u[dD][89a-fA-F]")
"""Matches in any body that is not strict JSON, and in some that are: in white space or texts."""


def is_strict_json(source: bytes) -> bool:
    """Return whether *source* is strict JSON in UTF-8: no byte order mark, NaN, bare control
    characters or lone surrogates.

    The bytes are parsed only if something in them is suspect.
    """
    try:
        text = source.decode()
    except UnicodeDecodeError:
        return False
    if source.startswith(_BYTE_ORDER_MARK):
        return False
    if _NOT_STRICT.search(source) is None:
        return True
    try:
        json.dumps(json.loads(text, parse_constant=_refuse), ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # UTF-8 cannot encode a lone surrogate
        return False
    return True


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


_CACHE_MARK = re.compile(rb'"cache_control"(\s{0,20}:\s{0,20})(\{[^{}]{0,200}\})')


def lengthen_cache(source: bytes) -> bytes:
    """Return *source* with the client's cache marks set to one hour; the same object if it has
    none.

    All marks are changed, because Anthropic accepts one-hour marks only before five-minute ones.
    """
    return _CACHE_MARK.sub(_lengthen_mark, source) if b'"cache_control"' in source else source


def _lengthen_mark(match: re.Match[bytes]) -> bytes:
    try:
        mark = json.loads(match[2])
    except ValueError:
        return match[0]
    if mark.get("type") != "ephemeral" or mark.get("ttl") == "1h":
        return match[0]
    return b'"cache_control"' + match[1] + json.dumps(mark | {"ttl": "1h"}).encode()
