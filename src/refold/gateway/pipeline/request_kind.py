"""What kind of request this is: auxiliary, with a history that its provider holds, or too short to
read.

Auxiliary requests (titles, classifiers, memory agents, a client's own compaction) are recognised by
what clients say of them and by known words of their instructions. The rest has other tools or
another session key as a rule, and so is a conversation by itself.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from refold.codecs.codec import Payload
from refold.gateway.http.request import request_model
from refold.gateway.messages import (
    APIS,
    GatewayResponse,
    Incoming,
    Outgoing,
    is_auxiliary,
    provider_error,
)
from refold.gateway.settings import Settings
from refold.messages import Message, Opaque, Text
from refold.speakers.carriers import SUMMARY_WORDS
from refold.text.json_values import dig, parse_or_none
from refold.transcript import hash_message

RequestKind = Literal["", "compaction", "title", "classifier", "memory", "prewarm"]
"""What an auxiliary request asks for; empty for a conversation's own request."""

MAX_INSTRUCTION = 3_000
"""Characters of an instruction that are looked at."""

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
"""Words at the beginning of the last user message, and what they ask for."""

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
"""Words of the system prompt, and what they ask for."""


def request_kind(incoming: Incoming, payload: Payload) -> RequestKind:
    """Return what an auxiliary request asks for, as far as it says so itself; else an empty
    string. A classifier's has a transcript in tags and no tools; *payload* is not empty."""
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
    """Does the last message of *after* repeat one of *before* and add texts that speak of a
    summary?

    So does a client that asks for a compaction in words that are not in the tables. A person who
    goes back and adds something speaks of something else.
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


_HISTORY_FIELDS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("thread",),
    "openai_responses": ("previous_response_id", "conversation"),
    "gemini": ("cachedContent", "cached_content"),
}


def server_history_field(api: str, body: Mapping[str, Any]) -> str:
    """Return the field by which a request says that its provider holds the history; empty if none
    does."""
    return next((name for name in _HISTORY_FIELDS.get(api, ()) if body.get(name) is not None), "")


def refuse_server_history(field: str, body: Mapping[str, Any]) -> GatewayResponse | None:
    """Return the answer that makes a client send its full history from now on; None if there is
    none.

    The Anthropic SDK drops `thread` when threads are not supported. A client of
    `previous_response_id` learns that there is no such response.
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


EDITABLE_SIGNS = (
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
"""What stands in the body of a conversation with tool results, signed thinking or a provider's
compaction, in any API. A client that hides them by escapes gets its request as it wrote it."""


def parse_light_body(incoming: Incoming, settings: Settings) -> Mapping[str, Any] | None:
    """Return the body of a light request; None for any other.

    A light request has at most `Settings.read_above_bytes` bytes, carries its whole history, and
    holds nothing that a default local strategy would edit, so that passing it decides nothing for
    later.
    """
    source = incoming.body
    if (
        len(source) > settings.read_above_bytes
        or settings.strategies is not None
        or incoming.api in settings.native
    ):
        return None
    for sign in EDITABLE_SIGNS:
        if sign in source:
            return None
    try:
        body = json.loads(source.decode())  # text saves the parser a look at the encoding
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) and not server_history_field(incoming.api, body) else None


def pass_light_request(
    incoming: Incoming, settings: Settings, fits: Callable[[Incoming, str, Mapping[str, Any]], bool]
) -> Outgoing | None:
    """Return what goes out for a request that is so short that it passes unread, if it *fits*
    (`ModelLimits.fits`)."""
    if incoming.api not in APIS or is_auxiliary(incoming.path):
        return None
    body = parse_light_body(incoming, settings)
    if body is None:
        return None
    model = request_model(incoming.path, body)
    if not fits(incoming, model, body):
        return None
    return Outgoing(incoming.body, reason="light", model=model)
