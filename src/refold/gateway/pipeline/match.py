"""Which of the known conversations a request goes on with: its client names it, or its history does."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from refold.codecs.detect import decode_all
from refold.codecs.payload import Payload
from refold.gateway.conversations.conversations import Conversation, Conversations, answer_hash
from refold.gateway.conversations.identity import (
    SessionKey,
    family_name,
    hash_parts,
    salt_of,
    session_key,
    tenant_of,
)
from refold.gateway.http.request_model import request_model
from refold.gateway.messages import Incoming
from refold.gateway.pipeline.turns import Turns
from refold.transcript import hash_message

ENTRY_BYTES = 500
"""Bytes of memory that an entry of a history takes at least, however short it is."""


@dataclass(frozen=True, eq=False)
class ConversationMatcher:
    """Finds the conversations of requests."""

    conversations: Conversations
    turns: Turns

    def find_or_create(self, incoming: Incoming, envelope: Payload) -> Conversation:
        """The conversation of a request, made where it is not known. Raises `StoreError`."""
        key, family, make = self._identify(incoming, envelope)
        if key.name:
            return self.conversations.get_or_create(
                family, _request_weight(incoming, envelope), partial(make, family)
            )
        known = self.conversations.of_family(family)
        found = find_continued(known, envelope)
        name = (
            found.name
            if found
            else new_name(family, envelope, (conversation.name for conversation in known))
        )
        conversation = self.conversations.get_or_create(
            name, _request_weight(incoming, envelope), lambda: found or make(name)
        )
        conversation.history.first_entry = first_entry_hash(envelope)
        conversation.history.answer_hashes = conversation.history.answer_hashes or answer_hashes(
            envelope
        )  # to be known by, should this turn fail
        return conversation

    def find_unkept(self, incoming: Incoming, envelope: Payload) -> Conversation:
        """The conversation of a request that is only looked at; one that is not kept, where this process knows none."""
        key, family, make = self._identify(incoming, envelope)
        known = self.conversations.of_family(family)
        found = next(iter(known), None) if key.name else find_continued(known, envelope)
        return found or make("")

    def _identify(
        self, incoming: Incoming, envelope: Payload
    ) -> tuple[SessionKey, str, Callable[[str], Conversation]]:
        """What a client calls its conversation, the family that has this name, and what makes it with a name of ours."""
        key = session_key(dict(incoming.headers), envelope.body)
        salt, model = salt_of(incoming, envelope.tools), request_model(incoming.path, envelope.body)
        family = family_name(salt, key)
        opened = partial(
            self.turns.create_conversation, family=family, salt=salt, tenant=tenant_of(incoming)
        )
        return key, family, partial(opened, incoming=incoming, model=model)


def _request_weight(incoming: Incoming, envelope: Payload) -> int:
    """What a conversation counts for in `Settings.known_bytes`: a body of very many tiny entries takes far more than its bytes."""
    return max(len(incoming.body), ENTRY_BYTES * len(envelope))


def find_continued(known: Sequence[Conversation], envelope: Payload) -> Conversation | None:
    """The one among conversations of one salt, the latest used first, that a history belongs to; None for another one:
    sessions of a caller whose client says nothing differ in their history alone.

    A history that goes on is known by its conversation's compactor. One that was rewound, or whose beginning was rewritten,
    holds answers of the model that stand in its conversation; the same question asked again holds none.
    """
    opening = first_entry_hash(envelope)
    knowing = {
        conversation.name: conversation.compactor.matching_prefix_length(envelope)
        for conversation in known
        if conversation.history.first_entry == opening
    }
    if any(knowing.values()):
        return max(known, key=lambda conversation: knowing.get(conversation.name, 0))
    heard = answer_hashes(envelope)
    shared = {
        conversation.name: len(heard.intersection(conversation.history.answer_hashes))
        for conversation in known
    }
    return (
        max(known, key=lambda conversation: shared[conversation.name])
        if any(shared.values())
        else None
    )


def first_entry_hash(envelope: Payload) -> bytes:
    """A hash of what a history begins with."""
    return hash_message(envelope.codec.decode(envelope.entry(0), ()))


def answer_hashes(envelope: Payload) -> frozenset[bytes]:
    """The answers in a history that no other would have."""
    return frozenset(filter(None, map(answer_hash, decode_all(envelope))))


def new_name(family: str, envelope: Payload, taken: Iterable[str]) -> str:
    """A name for a new conversation, which says nothing of what was said: the same in every process, unless another
    that is known here began in the same words."""
    names, number, first = frozenset(taken), 0, first_entry_hash(envelope).hex()
    name = hash_parts("thread", family, first)
    while name in names:
        number += 1
        name = hash_parts("thread", family, first, str(number))
    return name
