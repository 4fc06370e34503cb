"""Which of the known conversations a request goes on with, where its client does not name it."""

from collections.abc import Iterable, Sequence

from refold.codecs import decode_all
from refold.envelope import Envelope
from refold.gateway.identity import hashed
from refold.gateway.threads import Thread, telling
from refold.transcript import digest


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


def named(salt: str, envelope: Envelope, taken: Iterable[str]) -> str:
    """A name for a new conversation, which says nothing of what was said: the same in every process, unless another
    that is known here began in the same words."""
    names, number, first = frozenset(taken), 0, opened(envelope).hex()
    name = hashed("thread", salt, first)
    while name in names:
        number += 1
        name = hashed("thread", salt, first, str(number))
    return name
