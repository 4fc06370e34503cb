"""Which conversation is asked about, and its history: as it was sent along, or as this process remembers it."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from refold.codecs.detect import CODECS, decode_all, open_payload
from refold.codecs.payload import Payload
from refold.errors import FormatError
from refold.gateway.api.context import Desk, Problem
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.http.request import RequestHead
from refold.gateway.messages import Incoming
from refold.gateway.pipeline.turns import Turn
from refold.gateway.policy.request_kind import server_history_field


class Found(NamedTuple):
    """A conversation with its history."""

    turn: Turn
    posted: bool
    """Did who asks send the history? If not, nothing of it may stand in the answer."""
    beside: int
    """Estimated tokens of system prompt and tools that *turn* lacks, since they are not remembered."""

    @property
    def thread(self) -> Conversation:
        """The conversation."""
        return self.turn.conversation


def known(desk: Desk, session: str) -> Conversation:
    """The conversation of this name that sent a request. Raises `Problem` 404."""
    thread = next((one for one in desk.pipeline.conversations if one.name == session and one.latest), None)
    if thread is None:
        raise Problem(
            404, "no_session", "No such session is known: its next request makes it known."
        )
    return thread


def find(desk: Desk, asked: Mapping[str, Any]) -> Found:
    """The conversation of `session`, else the one that `request` with `headers` belongs to. Raises `Problem`,
    `FormatError`, `StoreError`."""
    thread = known(desk, asked["session"]) if "session" in asked else None
    if "request" in asked:
        return Found(_posted(desk, asked, thread), posted=True, beside=0)
    if thread is None:
        raise Problem(400, "bad_request", "session or request is missing")
    turn = _remembered(thread)
    return Found(turn, posted=False, beside=_beside(thread))


def _posted(desk: Desk, asked: Mapping[str, Any], thread: Conversation | None) -> Turn:
    body = json.dumps(asked["request"]).encode()
    api = thread.compactor.format if thread else asked.get("api")
    envelope = _opened(body, api)
    upstream = thread.latest.upstream if thread and thread.latest else ""
    headers = tuple((name.lower(), value) for name, value in asked.get("headers", {}).items())
    key = desk.whose(RequestHead("POST", "/", "", tuple((name.encode(), _raw(value)) for name, value in headers)))
    path = f"/models/{asked.get('model', '')}:generateContent"
    incoming = Incoming(envelope.codec.NAME, upstream, path, headers, body, key)
    return Turn(incoming, envelope, thread or desk.pipeline.matcher.find_or_create(incoming, envelope))


def _opened(body: bytes, api: Any) -> Payload:
    envelope = open_payload(body, api)
    if field := server_history_field(envelope.codec.NAME, envelope.body):
        raise Problem(
            422, "delta", f"The provider holds the rest of this conversation: it has {field}."
        )
    if not len(envelope):
        raise Problem(422, "empty", "The request holds no message.")
    return envelope


def _remembered(thread: Conversation) -> Turn:
    """The latest history out of memory, in the words of its API. Raises `Problem` where those would not say the
    same: an edit is true for exactly one history."""
    latest, codec = thread.latest, next(one for one in CODECS if thread.api == one.NAME)
    assert latest is not None  # noqa: S101 - `known` has looked
    said = latest.view.transcript.messages
    try:
        body = json.dumps(
            {"model": latest.model, codec.FIELD: [codec.encode(message) for message in said]}
        ).encode()
        envelope = open_payload(body, codec)
        same = not envelope.head and decode_all(envelope) == list(said)
    except FormatError:
        same = False
    if not same:
        raise Problem(
            409,
            "history_needed",
            "The history is not remembered word for word: send it as `request`.",
        )
    return Turn(Incoming(codec.NAME, latest.upstream, "/", (), body), envelope, thread)


def _beside(thread: Conversation) -> int:
    return thread.latest.view.profile.fixed_tokens if thread.latest else 0


def _raw(value: str) -> bytes:
    return value.encode("latin-1", "replace")
