"""What an engine of one's own is told of a session: its name, which part of a request to keep, and
what a compaction has made useless (docs/decisions/0028-engines.md)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from refold.core.view import View
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.messages import Headers
from refold.gateway.pipeline.body_fields import prepend_fields
from refold.gateway.pipeline.turns import Turn
from refold.gateway.settings import Engine

HEADERS = {
    "vllm": ("x-session-id",),
    "dynamo": (
        "x-dynamo-session-id",
        "x-claude-code-agent-id",
        "x-claude-code-session-id",
        "session-id",
        "x-session-id",
    ),
}
"""Headers that name a session: ours first, then those that the engine takes from clients."""
_HINTS = "kv_hints"
PRIORITY = 80
"""Of the part of a request that is to be kept; an engine's scale ends at 100."""


class EngineSession(NamedTuple):
    """A session as its engine knows it."""

    engine: Engine
    id: str
    is_client_s: bool
    """Has the client named it?"""
    conversation: Conversation
    dead: tuple[str, ...] = ()
    """Names under which the engine holds what compactions have changed."""

    def give_up(self) -> None:
        """Note that the engine is told to give up what is *dead*."""
        first, stop = self.conversation.held.start, self.conversation.held.stop
        self.conversation.held = range(min(first + len(self.dead), stop - 1), stop)


def open_session(turn: Turn, view: View) -> EngineSession | None:
    """Return the session that a request belongs to, for its engine; None if that takes no names.

    With `kv_hints`, SGLang knows what was sent before a compaction under a name of its own, so that
    it can be given up.
    """
    settings, incoming, conversation = turn.resources.settings, turn.incoming, turn.conversation
    engine = settings.find_engine(incoming.upstream, turn.model)
    if engine is None or not engine.protocol or settings.shadow:
        return None
    if own := _client_s_name(turn, engine):
        return EngineSession(engine, own, True, conversation)
    if engine.protocol != "sglang" or not engine.kv_hints:
        return EngineSession(engine, conversation.name, False, conversation)
    before = conversation.latest
    if before is not None and is_prefix_changed(before.view, view):
        conversation.held = range(conversation.held.start, conversation.held.stop + 1)
    *dead, id = [f"{conversation.name}-{number}" for number in conversation.held]
    return EngineSession(engine, id, False, conversation, tuple(dead))


def _client_s_name(turn: Turn, engine: Engine) -> str:
    body, incoming = turn.payload.body, turn.incoming
    names = (incoming.header(name) for name in HEADERS.get(engine.protocol, ()))
    params = body.get("session_params")
    named = body.get("session_id") or (params.get("id") if isinstance(params, Mapping) else "")
    return next(filter(None, names), "") or (named if isinstance(named, str) else "")


def is_prefix_changed(before: View, after: View) -> bool:
    """Does *after* show otherwise what was sent as *before*?"""
    sent = len(before.transcript)
    shown, shown_now = (
        [placed.edit.id for placed in view.visible_edits if placed.edit.start < sent]
        for view in (before, after)
    )
    return shown != shown_now


def add_session(
    turn: Turn, view: View, source: bytes, headers: Headers, session: EngineSession
) -> tuple[bytes, Headers]:
    """Return *source* and *headers* with what the engine is told of *session*. What the client says
    of it itself stays."""
    engine, fields, body = session.engine, dict[str, Any](), turn.payload.body
    is_openai = turn.incoming.api.startswith("openai")
    if engine.protocol == "sglang":
        if not session.is_client_s and is_openai:
            fields["session_id"] = session.id
    elif not session.is_client_s:
        headers = (*headers, (HEADERS[engine.protocol][0], session.id))
    if engine.protocol == "vllm" and engine.kv_hints and is_openai and _HINTS not in body:
        fields |= _hints(turn, view, session)
    return (prepend_fields(source, fields) if fields else source), headers


def _hints(turn: Turn, view: View, session: EngineSession) -> dict[str, Any]:
    """Return the envelope that asks to keep what the last compaction left, in whole blocks, or
    system prompt and tools before any.

    Nothing is asked for what came since: the next compaction makes it useless.
    """
    profile = session.engine.profile
    fixed = view.profile.calibrate(view.profile.fixed_tokens)
    tokens = min(view.tokens, max(fixed, turn.conversation.baseline_tokens or 0))
    stop = tokens // profile.block_tokens * profile.block_tokens
    if not stop:
        return {}
    directive = {"start": 0, "end": stop, "priority": PRIORITY, "duration": profile.lifetime}
    action = {
        "action_id": "keep",
        "action_type": "kv.retain",
        "action_version": "1.0",
        "payload": {"scope": session.id, "directives": [directive]},
    }
    name = f"{session.id}/{len(view.transcript)}"
    return {_HINTS: {"protocol_version": "0.1", "message_id": name, "actions": [action]}}
