"""Which conversation is asked about, and its history: as it was sent along, or as this process
remembers it."""

import json
from typing import NamedTuple

from msgspec import UNSET, UnsetType

from refold.codecs.codec import Codec
from refold.codecs.detect import CODECS, open_payload
from refold.codecs.payload import Payload
from refold.core.view import View
from refold.edits import Edit
from refold.errors import EditError, FormatError
from refold.gateway.api.arguments import ConversationArguments
from refold.gateway.api.context import ApiContext, Problem
from refold.gateway.conversations.conversations import Conversation, LatestRequest
from refold.gateway.http.request import RequestHead
from refold.gateway.messages import Incoming
from refold.gateway.pipeline.match import find_conversation, with_model
from refold.gateway.pipeline.turns import Turn
from refold.gateway.policy.request_kind import server_history_field


class Remembered(NamedTuple):
    """A conversation that sent a request."""

    conversation: Conversation
    latest: LatestRequest


class LocatedSession(NamedTuple):
    """A conversation with its history."""

    turn: Turn
    is_sent_along: bool
    """Did the caller send the history? If not, the answer may quote none of it."""
    unseen_tokens: int
    """Estimated tokens of system prompt and tools that *turn* lacks, since they are not remembered.
    """

    @property
    def conversation(self) -> Conversation:
        """The conversation."""
        return self.turn.conversation


def list_remembered(context: ApiContext) -> list[Remembered]:
    """Return the conversations that sent a request."""
    return [
        Remembered(conversation, conversation.latest)
        for conversation in context.pipeline.conversations
        if conversation.latest
    ]


def find_remembered(context: ApiContext, session: str | UnsetType) -> Remembered:
    """Return the conversation of this name that sent a request. Raises `Problem` 404."""
    for remembered in list_remembered(context):
        if remembered.conversation.name == session:
            return remembered
    raise Problem(404, "no_session", "No such session is known: its next request makes it known.")


def locate(context: ApiContext, asked: ConversationArguments) -> LocatedSession:
    """Return the conversation of `session`, else the one that `request` with `headers` belongs to.
    Raises `Problem`, `FormatError`, `StoreError`."""
    remembered = find_remembered(context, asked.session) if asked.session else None
    if remembered is None or asked.request is not UNSET:
        return LocatedSession(
            _turn_of_request(context, asked, remembered), is_sent_along=True, unseen_tokens=0
        )
    unseen_tokens = remembered.latest.view.profile.fixed_tokens
    return LocatedSession(
        _turn_of_latest(context, remembered), is_sent_along=False, unseen_tokens=unseen_tokens
    )


def show(context: ApiContext, located: LocatedSession) -> View:
    """Return the history with the edits that show now. Raises `ConversationBusy`, `StoreError`."""
    with located.conversation.hold(context.pipeline.settings.decide_timeout_seconds / 2):
        return located.turn.show()


def find_edit(view: View, id: str) -> Edit:
    """Return the edit of this id, or of a unique beginning of it. Raises `Problem` 404."""
    try:
        return view.find(id)
    except EditError as error:
        raise Problem(404, "no_edit", str(error)) from error


def _turn_of_request(
    context: ApiContext, asked: ConversationArguments, remembered: Remembered | None
) -> Turn:
    """The history in `request`, of the remembered conversation if there is one."""
    body = json.dumps(asked.request).encode()
    conversation = remembered.conversation if remembered else None
    payload = _open_request(
        body, conversation.compactor.settings.format if conversation else asked.api or None
    )
    headers = tuple((name.lower(), value) for name, value in (asked.headers or {}).items())
    raw_headers = tuple(
        (name.encode(), value.encode("latin-1", "replace")) for name, value in headers
    )
    incoming = Incoming(
        payload.codec.NAME,
        remembered.latest.upstream if remembered else "",
        f"/models/{asked.model or ''}:generateContent",
        headers,
        body,
        context.tenant_of(RequestHead("POST", "/", "", raw_headers)),
    )
    payload, resources = with_model(payload, incoming.path), context.pipeline.resources
    conversation = conversation or find_conversation(resources, incoming, payload)
    return Turn(resources, incoming, payload, conversation)


def _open_request(body: bytes, api: Codec | str | None) -> Payload:
    payload = open_payload(body, api)
    if field := server_history_field(payload.codec.NAME, payload.body):
        raise Problem(
            422, "delta", f"The provider holds the rest of this conversation: it has {field}."
        )
    if not len(payload):
        raise Problem(422, "empty", "The request holds no message.")
    return payload


def _turn_of_latest(context: ApiContext, remembered: Remembered) -> Turn:
    """The latest history out of memory, encoded for its API. Raises `Problem` 409 if decoding gives
    other messages: an edit is true for exactly one history."""
    conversation, latest = remembered
    codec = next(codec for codec in CODECS if conversation.api == codec.NAME)
    messages = latest.view.transcript.messages
    try:
        entries = [codec.encode(message) for message in messages]
        body = json.dumps({"model": latest.model, codec.FIELD: entries}).encode()
        payload = open_payload(body, codec)
        is_same = not payload.head and payload.decode() == list(messages)
    except FormatError:
        is_same = False
    if not is_same:
        raise Problem(
            409,
            "history_needed",
            "The history is not remembered word for word: send it as `request`.",
        )
    incoming = Incoming(codec.NAME, latest.upstream, "/", (), body)
    return Turn(context.pipeline.resources, incoming, payload, conversation)
