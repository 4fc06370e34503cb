"""Which conversation a request belongs to.

An edit is found by the tip of the history it was made for (docs/formats.md). What is decided here
is the salt of those tips: the API, the caller's credential and the tools. So one history has
different tips for two tenants, and for an agent and a helper of other tools that is given the same
history. The key that the client sends names a session, and is no part of it: a fork under a new key
finds what was decided about the past that it shares (D6).
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from refold.gateway.messages import Incoming
from refold.text.json_values import dig, parse_or_none, text_at

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
    user = text_at(body, "metadata", "user_id")
    return SessionKey("metadata.user_id", _session_of(user)) if user else SessionKey("", "")


def tools_fingerprint(tools: tuple[str, ...]) -> str:
    """Return a fingerprint of tool definitions in canonical JSON, whatever their order."""
    return (
        blake2b(
            "\n".join(sorted(tools)).encode("utf-8", "surrogatepass"), digest_size=8
        ).hexdigest()
        if tools
        else ""
    )


def salt_of(incoming: Incoming, tools: tuple[str, ...]) -> str:
    """Return the salt of a conversation's tips, from which nothing that was sent can be read."""
    return hash_parts(incoming.api, incoming.credential, tools_fingerprint(tools))


def family_name(salt: str, key: SessionKey) -> str:
    """Return what the sessions of a caller under one *key*, or none, share beside their salt."""
    return hash_parts("thread", salt, *key)


@lru_cache(maxsize=1_000)
def tenant_of(api: str, credential: str) -> str:
    """Return what all conversations of one caller over one API share."""
    return hash_parts(api, credential)


def hash_parts(*parts: str) -> str:
    """Return one short name for several parts."""
    return blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def _session_of(user: str) -> str:
    """Return the session in a `user_id` that is a JSON object with one; else the whole."""
    session = dig(parse_or_none(user), "session_id")
    return session if isinstance(session, str) else user
