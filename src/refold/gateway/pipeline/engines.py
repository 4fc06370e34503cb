"""Messages to self-hosted inference engines (vLLM, SGLang, Dynamo) about a session: its name, the
prefix to keep cached, what a compaction has made stale, and its end
(docs/decisions/0028-engines.md)."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from refold.core.view import View
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.exchange import Headers, HTTPException
from refold.gateway.http.request import UpstreamRequest
from refold.gateway.metrics import Counters
from refold.gateway.pipeline.request_kind import prepend_fields
from refold.gateway.pipeline.turns import Turn
from refold.gateway.settings import Engine, Upstream
from refold.tokens.model_table import LONGEST_NAME

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
"""Headers that name a session: the one that we send, then those that the engine takes from
clients."""
_HINTS = "kv_hints"
MAX_SESSIONS = 10_000
"""Maximum number of sessions with an end timer. An engine evicts any others itself."""
PRIORITY = 80
"""Retention priority of the prefix to keep. An engine's scale ends at 100."""


class EngineSession(NamedTuple):
    """A session as its engine knows it."""

    engine: Engine
    id: str
    is_named_by_client: bool
    conversation: Conversation
    stale: tuple[str, ...] = ()
    """Names under which the engine holds prefixes that compactions have changed."""

    def forget_stale(self) -> None:
        """Record that the engine is told to drop the *stale* names."""
        spans = self.conversation.engine_generations
        self.conversation.engine_generations = range(
            min(spans.start + len(self.stale), spans.stop - 1), spans.stop
        )


def open_session(turn: Turn, view: View) -> EngineSession | None:
    """Return a request's session for its engine; None without an engine that takes names, or in
    shadow.

    A client's own name is kept. Else, with `kv_hints`, SGLang gets a new name after each
    compaction, so that it can drop what it holds under earlier ones.
    """
    settings, incoming, conversation = turn.resources.settings, turn.incoming, turn.conversation
    engine = settings.find_engine(incoming.upstream, turn.model)
    if engine is None or not engine.protocol or settings.shadow:
        return None
    if own := _client_name(turn, engine):
        return EngineSession(engine, own, True, conversation)
    if engine.protocol != "sglang" or not engine.kv_hints:
        return EngineSession(engine, conversation.name, False, conversation)
    before = conversation.latest
    if before is not None and is_prefix_changed(before.view, view):
        spans = conversation.engine_generations
        conversation.engine_generations = range(spans.start, spans.stop + 1)
    *stale, id = [f"{conversation.name}-{number}" for number in conversation.engine_generations]
    return EngineSession(engine, id, False, conversation, tuple(stale))


def _client_name(turn: Turn, engine: Engine) -> str:
    body, incoming = turn.payload.body, turn.incoming
    names = (incoming.header(name) for name in HEADERS.get(engine.protocol, ()))
    params = body.get("session_params")
    named = body.get("session_id") or (params.get("id") if isinstance(params, Mapping) else "")
    return next(filter(None, names), "") or (named if isinstance(named, str) else "")


def is_prefix_changed(before: View, after: View) -> bool:
    """Return whether *after* shows the messages of *before* with other edits."""
    sent = len(before.transcript)
    shown, shown_now = (
        [placed.edit.id for placed in view.visible_edits if placed.edit.start < sent]
        for view in (before, after)
    )
    return shown != shown_now


def add_session(
    turn: Turn, view: View, source: bytes, headers: Headers, session: EngineSession
) -> tuple[bytes, Headers]:
    """Return *source* and *headers* with what the engine is told about *session*. Names and hints
    that the client sends itself are kept."""
    engine, fields, body = session.engine, dict[str, Any](), turn.payload.body
    is_openai = turn.incoming.api.startswith("openai")
    if engine.protocol == "sglang":
        if not session.is_named_by_client and is_openai:
            fields["session_id"] = session.id
    elif not session.is_named_by_client:
        headers = (*headers, (HEADERS[engine.protocol][0], session.id))
    if engine.protocol == "vllm" and engine.kv_hints and is_openai and _HINTS not in body:
        fields |= _hints(turn, view, session)
    return (prepend_fields(source, fields) if fields else source), headers


def _hints(turn: Turn, view: View, session: EngineSession) -> dict[str, Any]:
    """Return the field that asks the engine to keep the prefix left by the last compaction, in
    whole blocks; before any compaction, the system prompt and tools. Empty for less than a block.

    Later messages are not kept, because the next compaction makes them stale.
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


# --- ends of sessions and of their stale parts ----------------------------------------------------


class SessionEnds:
    """Tells engines which sessions have ended. One event loop, one process.

    A notice that is lost, because the gateway stops or the engine does not answer, is not repeated:
    the engine evicts the session itself.
    """

    def __init__(
        self, send: Callable[[UpstreamRequest], Awaitable[Any]], counters: Counters
    ) -> None:
        """*send* returns an engine's response (`HTTPClient.send`)."""
        self._send, self._counters = send, counters
        self._timers = dict[tuple[str, str], asyncio.TimerHandle]()
        self._tasks = set[asyncio.Task[None]]()

    def note(self, session: EngineSession, upstream: Upstream, model: str) -> None:
        """Record that a request of *session* was answered. Tell the engine now that its stale names
        have ended, and once `Engine.end_seconds` pass without another request, the session."""
        engine = session.engine
        send_end = partial(self._send_end, upstream, engine, model)
        for name in session.stale:
            self._cancel_timer(upstream.name, name)
            send_end(name)
        session.forget_stale()
        if engine.end_seconds is not None and len(session.id) <= LONGEST_NAME:
            self._cancel_timer(upstream.name, session.id)
            if len(self._timers) >= MAX_SESSIONS:
                self._cancel_timer(*next(iter(self._timers)))
            loop = asyncio.get_running_loop()
            self._timers[upstream.name, session.id] = loop.call_later(
                engine.end_seconds, send_end, session.id
            )

    async def aclose(self) -> None:
        """Cancel all pending notices."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._timers.clear()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _cancel_timer(self, upstream: str, id: str) -> None:
        if timer := self._timers.pop((upstream, id), None):
            timer.cancel()

    def _send_end(self, upstream: Upstream, engine: Engine, model: str, id: str) -> None:
        self._timers.pop((upstream.name, id), None)
        request = _end_request(upstream, engine, model, id)
        task = asyncio.get_running_loop().create_task(self._await_answer(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _await_answer(self, request: UpstreamRequest) -> None:
        try:
            response = await self._send(request)
            is_taken = response.status < 300
            response.release()
        except HTTPException:
            is_taken = False
        result = "told" if is_taken else "failed"
        self._counters.add("engine_ends", upstream=request.upstream.name, result=result)


def _end_request(upstream: Upstream, engine: Engine, model: str, id: str) -> UpstreamRequest:
    """Return the request that makes SGLang free a session's blocks, or the smallest one that Dynamo
    accepts as a session's last."""
    headers, body = [(b"content-type", b"application/json")], dict[str, Any]()
    if engine.protocol == "sglang":
        path, body = "/close_session", {"session_id": id}
    else:
        path = "/v1/chat/completions"
        body = {"model": model, "messages": [{"role": "user", "content": "."}], "max_tokens": 1}
        headers += [(b"x-dynamo-session-id", id.encode()), (b"x-dynamo-session-final", b"true")]
    if engine.key:
        headers.append((b"authorization", f"Bearer {engine.key}".encode()))
    root = replace(upstream, url=upstream.url.rstrip("/").removesuffix("/v1"))
    return UpstreamRequest(root, "POST", path, headers, json.dumps(body).encode())
