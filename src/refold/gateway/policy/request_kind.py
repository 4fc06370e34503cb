"""Requests beside the conversation: titles, classifiers, memory agents, a client's own compaction.

They are recognised by what clients say of them and by known words of their instructions; what is
not recognised has other tools or another session key as a rule, and so is a conversation of its own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from refold.codecs.payload import Payload
from refold.gateway.messages import Incoming
from refold.messages import Message, Opaque, Text
from refold.speakers.carriers import SUMMARY_WORDS
from refold.transcript import hash_message

RequestKind = Literal["", "compaction", "title", "classifier", "memory", "prewarm"]
"""What a request is beside a conversation; empty for one of the conversation's own."""

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
"""Words of the system prompt, likewise."""


def request_kind(incoming: Incoming, envelope: Payload) -> RequestKind:
    """What this request is beside a conversation, as far as it says so itself."""
    if envelope.body.get("generate") is False:
        return "prewarm"
    if _codex_kind(incoming) == "compaction":
        return "compaction"
    last = _last_message(envelope)
    if last is not None and any(
        isinstance(part, Opaque) and part.kind == "compaction_trigger" for part in last.parts
    ):
        return "compaction"
    asked = _match_words(_user_text(last) if last else "", USER_WORDS)
    if asked or envelope.tools:
        return asked or _match_words(_system_text(envelope), SYSTEM_WORDS)
    return _match_words(_system_text(envelope), SYSTEM_WORDS) or _classifier_kind(last)


def is_added_summary_request(before: Sequence[Message], after: Sequence[Message]) -> bool:
    """Is *after* no longer than *before*, and its last message one of *before* with texts added that speak of a summary? So
    asks a client for a compaction whose words we do not know. A person who goes back and says something else asks so, too,
    but of something else (D8)."""
    at = len(after) - 1
    if (
        not 0 <= at < len(before)
        or not before[at].results
        or hash_message(before[at]) == hash_message(after[at])
    ):
        return False
    old, new = before[at].parts, after[at].parts
    added = [part.text for part in new[len(old) :] if isinstance(part, Text)]
    only = old == new[: len(old)] and bool(added) and len(added) == len(new) - len(old)
    return only and any(SUMMARY_WORDS.search(text[:MAX_INSTRUCTION]) for text in added)


def _codex_kind(incoming: Incoming) -> str:
    said = incoming.header("x-codex-turn-metadata")
    try:
        value = json.loads(said) if said else {}
    except (ValueError, RecursionError):
        return ""
    kind = value.get("request_kind") if isinstance(value, Mapping) else ""
    return kind if isinstance(kind, str) else ""


def _last_message(envelope: Payload) -> Message | None:
    if not len(envelope):
        return None
    message: Message = envelope.codec.decode(envelope.entry(len(envelope) - 1), ())
    return message


def _user_text(message: Message) -> str:
    """The beginning of each text of a message of the user."""
    return "\n".join(_texts(message.parts)) if message.role == "user" else ""


def _system_text(envelope: Payload) -> str:
    return "\n".join(_texts(envelope.system))


def _texts(parts: Any) -> Iterator[str]:
    return (part.text[:MAX_INSTRUCTION] for part in parts if isinstance(part, Text))


def _match_words(text: str, table: tuple[tuple[str, RequestKind], ...]) -> RequestKind:
    return next((side for words, side in table if words in text), "") if text else ""


def _classifier_kind(last: Message | None) -> RequestKind:
    """A request without tools about a transcript in tags."""
    texts = list(_texts(last.parts)) if last is not None else []
    return "classifier" if texts and texts[0].startswith("<transcript>") else ""
