"""Which of the known conversations a request goes on with, where its client does not name it."""

from collections.abc import Iterable, Sequence

from refold.codecs import decode_all
from refold.envelope import Envelope
from refold.gateway.identity import hashed
from refold.gateway.threads import Thread, telling
from refold.transcript import Transcript


def continued(known: Sequence[Thread], envelope: Envelope) -> Thread | None:
    """The one among conversations of one salt, the latest used first, that a history belongs to; None for another one:
    sessions of a caller whose client says nothing differ in their history alone.

    A history that goes on is known by its conversation's compactor. One that was rewound, or whose beginning was rewritten,
    holds answers of the model that stand in its conversation; the same question asked again holds none.
    """
    longest = max(known, key=lambda thread: thread.compactor.knows(envelope), default=None)
    if longest is None or longest.compactor.knows(envelope):
        return longest
    heard = answers(envelope)
    shared = {thread.name: len(heard.intersection(thread.heard)) for thread in known}
    nearest = max(known, key=lambda thread: shared[thread.name])
    return nearest if shared[nearest.name] else None


def answers(envelope: Envelope) -> frozenset[bytes]:
    """The answers in a history that no other would have."""
    return frozenset(filter(None, map(telling, decode_all(envelope))))


def named(salt: str, envelope: Envelope, taken: Iterable[str]) -> str:
    """A name for a new conversation, which says nothing of what was said: the same in every process, unless another
    that is known here began in the same words."""
    first = Transcript.of((envelope.codec.decode(envelope.item(0), ()),), salt).tips[-1]
    names, number = frozenset(taken), 0
    name = hashed("thread", salt, first)
    while name in names:
        number += 1
        name = hashed("thread", salt, first, str(number))
    return name
