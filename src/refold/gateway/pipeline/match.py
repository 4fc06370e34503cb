"""Which conversation a request belongs to: its client names it, or its history does.

An edit is found by the tip of the history it was made for (docs/formats.md). What is decided here
is the salt of those tips: the API, the caller's credential and the tools. So one history has
different tips for two tenants, and for an agent and a helper of other tools that is given the same
history. The key that the client sends names a session, and is no part of it: a fork under a new key
finds what was decided about the past that it shares.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, NamedTuple

from refold.codecs import anthropic
from refold.codecs.codec import Codec, Payload, with_rules
from refold.codecs.detect import open_payload
from refold.compactor.pins import Pins
from refold.gateway.conversations.conversations import Conversation, answer_hashes
from refold.gateway.conversations.stores import hash_parts
from refold.gateway.http.request import request_model
from refold.gateway.messages import Incoming
from refold.gateway.pipeline.turns import Resources, Turn, model_of
from refold.gateway.settings import Settings
from refold.text.json_values import parse_or_none, text_at
from refold.transcript import hash_message

ENTRY_BYTES = 500
"""Bytes of memory that an entry of a history takes at least, however short it is."""
OLDER_ANTHROPIC = with_rules(anthropic, anthropic.older_rules)
"""Messages of accounts that do not check what thinking is bound to (AN-8)."""
AGENT_HEADER = "x-claude-code-agent-id"
"""Names a sub-agent of Claude Code, which shares its session's id."""
SESSION_HEADER = "x-claude-code-session-id"
"""Names a session of Claude Code, to which all its sub-agents belong."""
SESSION_HEADERS = (
    "thread-id",
    "x-session-id",
    "x-affinity",
    SESSION_HEADER,
    "x-litellm-session-id",
    "session_id",
    "x-opencode-session",
    "x-session-affinity",
    "x-amp-thread-id",
    "session-id",
)
"""Headers that name a conversation, the most specific first. Codex's `session-id` names a whole
tree of agents, so it comes last."""


def open_request(resources: Resources, incoming: Incoming) -> Payload:
    """Parse a request, but for what its caller has sent before. Raises `FormatError`."""
    lookup = partial(resources.prefixes.lookup, scope=incoming.credential.encode())
    payload = with_model(open_payload(incoming.body, incoming.api, lookup), incoming.path)
    codec = _codec(resources.settings, incoming)
    return payload if isinstance(codec, str) else replace(payload, codec=codec)


def with_model(payload: Payload, path: str) -> Payload:
    """Return *payload* with the model in its body that the path names."""
    model = request_model(path, payload.body)
    if not model or model == payload.body.get("model"):
        return payload
    return replace(payload, body={**payload.body, "model": model})


def open_turn(
    resources: Resources, incoming: Incoming, payload: Payload, *, is_kept: bool = True
) -> Turn:
    """Return the turn of a request in its conversation, in memory while the store is left alone."""
    conversation = find_conversation(resources, incoming, payload, is_kept=is_kept)
    is_usable = not conversation.is_stuck and resources.breaker.allows()
    return Turn(resources, incoming, payload, conversation, in_memory=not is_usable)


def find_conversation(
    resources: Resources, incoming: Incoming, payload: Payload, *, is_kept: bool = True
) -> Conversation:
    """Return the conversation of a request. One that is not known is created, and kept unless the
    request is only looked at."""
    conversations = resources.conversations
    key = session_key(dict(incoming.headers), payload.body)
    salt = hash_parts(incoming.api, incoming.credential, tools_fingerprint(payload.tools))
    family = hash_parts("thread", salt, *key)
    create = partial(create_conversation, resources, family, salt, incoming, payload)
    if key.name:
        first_entry, name, match = b"", family, conversations.get(family)
    else:
        first_entry = hash_message(payload.codec.decode(payload.entry(0), ()))
        relatives = conversations.of_family(family)
        match = find_continued(relatives, payload, first_entry)
        name = match.name if match else new_name(family, first_entry, relatives)
    if not is_kept:
        return match or create("")
    size = max(len(incoming.body), ENTRY_BYTES * len(payload))
    conversation = conversations.get_or_create(name, size, lambda: match or create(name))
    conversation.history.first_entry = first_entry
    return conversation


def create_conversation(
    resources: Resources,
    family: str,
    salt: str,
    incoming: Incoming,
    payload: Payload,
    name: str,
    *,
    tenant: str = "",
) -> Conversation:
    """Return a new conversation, which is not kept yet. *tenant*, if *incoming* does not tell
    it."""
    tenant = tenant or tenant_of(incoming.api, incoming.credential)
    levels = resources.model_limits.for_model(incoming, model_of(payload))
    format = _codec(resources.settings, incoming)
    pins = Pins(resources.store, name)
    compactor = resources.make_compactor(name, tenant, levels, format, salt, pins)
    conversation = Conversation(name, family, tenant, compactor, levels.target, pins)
    conversation.history.opened = payload
    return conversation


def _codec(settings: Settings, incoming: Incoming) -> str | Codec:
    is_older = incoming.upstream in settings.older_accounts
    return OLDER_ANTHROPIC if is_older and incoming.api == anthropic.NAME else incoming.api


def find_continued(
    relatives: Sequence[Conversation], payload: Payload, first_entry: bytes
) -> Conversation | None:
    """Return which of the conversations of one salt, the latest used first, a history belongs to.

    None if it begins another: sessions of a caller whose client names none differ in their history
    alone. A history that grows is known by its conversation's compactor. One that was rewound, or
    whose beginning was rewritten, holds answers of the model that stand in its conversation; the
    same question asked again holds none.
    """
    lengths = [
        conversation.compactor.matching_prefix_length(payload)
        if conversation.history.first_entry == first_entry
        else 0
        for conversation in relatives
    ]
    if relatives and not any(lengths):
        answers = answer_hashes(payload)
        lengths = [
            len(answers.intersection(conversation.history.answer_hashes))
            for conversation in relatives
        ]
    longest = max(lengths, default=0)
    return relatives[lengths.index(longest)] if longest else None


def new_name(family: str, first_entry: bytes, relatives: Iterable[Conversation]) -> str:
    """Return a name for a new conversation, from which nothing that was sent can be read.

    It is the same in every process, unless another of its *relatives* began with the same words.
    """
    names, number = {conversation.name for conversation in relatives}, 0
    first = first_entry.hex()
    name = hash_parts("thread", family, first)
    while name in names:
        number += 1
        name = hash_parts("thread", family, first, str(number))
    return name


# --- what a conversation is named by --------------------------------------------------------------


class SessionKey(NamedTuple):
    """What a client calls its conversation."""

    name: str
    """The header or field; empty if the client sends none."""
    value: str


def session_key(headers: Mapping[str, str], body: Mapping[str, Any]) -> SessionKey:
    """Return the most specific key of a request: a header, else `prompt_cache_key`, else
    `metadata.user_id`."""
    for name in SESSION_HEADERS:
        if value := headers.get(name):
            if name == SESSION_HEADER:
                return SessionKey(f"{name}+agent-id", f"{value}/{headers.get(AGENT_HEADER, '')}")
            return SessionKey(name, value)
    if cache_key := text_at(body, "prompt_cache_key"):
        return SessionKey("prompt_cache_key", cache_key)
    if user := text_at(body, "metadata", "user_id"):  # a session, or a JSON object with one
        return SessionKey("metadata.user_id", text_at(parse_or_none(user), "session_id") or user)
    return SessionKey("", "")


def tools_fingerprint(tools: tuple[str, ...]) -> str:
    """Return a fingerprint of tool definitions in canonical JSON, whatever their order."""
    text = "\n".join(sorted(tools)).encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=8).hexdigest() if tools else ""


@lru_cache(maxsize=1_000)
def tenant_of(api: str, credential: str) -> str:
    """Return what all conversations of one caller over one API share."""
    return hash_parts(api, credential)
