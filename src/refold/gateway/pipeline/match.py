"""Which of the known conversations a request goes on with: its client names it, or its history does."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from refold.codecs.detect import decode_all
from refold.codecs.payload import Envelope
from refold.gateway.conversations.conversations import Thread, Threads, telling
from refold.gateway.conversations.identity import (
    Key,
    family_of,
    hashed,
    salt_of,
    session_key,
    tenant_of,
)
from refold.gateway.http.request_model import request_model
from refold.gateway.messages import Incoming
from refold.gateway.pipeline.turns import Turns
from refold.transcript import digest

ENTRY = 500
"""Bytes of memory that an entry of a history takes at least, however short it is."""


@dataclass(frozen=True, eq=False)
class Belonging:
    """Finds the conversations of requests."""

    threads: Threads
    turns: Turns

    def thread_of(self, incoming: Incoming, envelope: Envelope) -> Thread:
        """The conversation of a request, made where it is not known. Raises `StoreError`."""
        key, family, make = self._named(incoming, envelope)
        if key.name:
            return self.threads.find(family, _weight(incoming, envelope), partial(make, family))
        known = self.threads.family(family)
        found = continued(known, envelope)
        name = found.name if found else named(family, envelope, (thread.name for thread in known))
        thread = self.threads.find(name, _weight(incoming, envelope), lambda: found or make(name))
        thread.opening = opened(envelope)
        thread.heard = thread.heard or answers(envelope)  # to be known by, should this turn fail
        return thread

    def looked_at(self, incoming: Incoming, envelope: Envelope) -> Thread:
        """The conversation of a request that is only looked at; one that is not kept, where this process knows none."""
        key, family, make = self._named(incoming, envelope)
        known = self.threads.family(family)
        found = next(iter(known), None) if key.name else continued(known, envelope)
        return found or make("")

    def _named(self, incoming: Incoming, envelope: Envelope) -> tuple[Key, str, Callable[[str], Thread]]:
        """What a client calls its conversation, the family that has this name, and what makes it with a name of ours."""
        key = session_key(dict(incoming.headers), envelope.body)
        salt, model = salt_of(incoming, envelope.tools), request_model(incoming.path, envelope.body)
        family = family_of(salt, key)
        opened = partial(self.turns.opened, family=family, salt=salt, tenant=tenant_of(incoming))
        return key, family, partial(opened, incoming=incoming, model=model)


def _weight(incoming: Incoming, envelope: Envelope) -> int:
    """What a conversation counts for in `Settings.known_bytes`: a body of very many tiny entries takes far more than its bytes."""
    return max(len(incoming.body), ENTRY * len(envelope))


def continued(known: Sequence[Thread], envelope: Envelope) -> Thread | None:
    """The one among conversations of one salt, the latest used first, that a history belongs to; None for another one:
    sessions of a caller whose client says nothing differ in their history alone.

    A history that goes on is known by its conversation's compactor. One that was rewound, or whose beginning was rewritten,
    holds answers of the model that stand in its conversation; the same question asked again holds none.
    """
    opening = opened(envelope)
    knowing = {thread.name: thread.compactor.knows(envelope) for thread in known if thread.opening == opening}
    if any(knowing.values()):
        return max(known, key=lambda thread: knowing.get(thread.name, 0))
    heard = answers(envelope)
    shared = {thread.name: len(heard.intersection(thread.heard)) for thread in known}
    return max(known, key=lambda thread: shared[thread.name]) if any(shared.values()) else None


def opened(envelope: Envelope) -> bytes:
    """A hash of what a history begins with."""
    return digest(envelope.codec.decode(envelope.item(0), ()))


def answers(envelope: Envelope) -> frozenset[bytes]:
    """The answers in a history that no other would have."""
    return frozenset(filter(None, map(telling, decode_all(envelope))))


def named(family: str, envelope: Envelope, taken: Iterable[str]) -> str:
    """A name for a new conversation, which says nothing of what was said: the same in every process, unless another
    that is known here began in the same words."""
    names, number, first = frozenset(taken), 0, opened(envelope).hex()
    name = hashed("thread", family, first)
    while name in names:
        number += 1
        name = hashed("thread", family, first, str(number))
    return name
