"""Requests opened, and the conversation that each continues: its client names it, or its history
does."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from refold.codecs import anthropic
from refold.codecs.codec import Codec, with_rules
from refold.codecs.detect import open_payload
from refold.codecs.payload import Payload
from refold.codecs.prefix_cache import PrefixCache
from refold.gateway.conversations.conversations import Conversation, Conversations, answer_hash
from refold.gateway.conversations.identity import (
    family_name,
    hash_parts,
    salt_of,
    session_key,
    tenant_of,
)
from refold.gateway.http.request_model import request_model
from refold.gateway.messages import Incoming
from refold.gateway.pipeline.turns import Turns
from refold.gateway.settings import Settings
from refold.transcript import hash_message

ENTRY_BYTES = 500
"""Bytes of memory that an entry of a history takes at least, however short it is."""
OLDER_ANTHROPIC = with_rules(anthropic, anthropic.older_rules)
"""Messages of accounts that do not check what thinking is bound to (AN-8)."""


@dataclass(frozen=True, eq=False)
class ConversationMatcher:
    """Opens requests and finds their conversations."""

    settings: Settings
    conversations: Conversations
    turns: Turns
    prefixes: PrefixCache
    """What of each caller's requests was parsed before."""

    def open(self, incoming: Incoming) -> Payload:
        """Parse a request, but for what its caller has sent before. Raises `FormatError`."""
        lookup = partial(self.prefixes.lookup, scope=incoming.credential.encode())
        payload = open_payload(incoming.body, incoming.api, lookup)
        codec = self._codec(incoming)  # the API's name first: it checks that the body is of that
        return payload if isinstance(codec, str) else replace(payload, codec=codec)

    def find_or_create(self, incoming: Incoming, payload: Payload) -> Conversation:
        """Return the conversation of a request; create it if it is not known. Raises
        `StoreError`."""
        size = max(len(incoming.body), ENTRY_BYTES * len(payload))
        key = session_key(dict(incoming.headers), payload.body)
        salt = salt_of(incoming, payload.tools)
        family = family_name(salt, key)
        if key.name:
            create = partial(self._create, family, family, salt, incoming, payload)
            return self.conversations.get_or_create(family, size, create)
        relatives = self.conversations.of_family(family)
        continued = find_continued(relatives, payload)
        name = continued.name if continued else new_name(family, payload, relatives)
        conversation = self.conversations.get_or_create(
            name, size, lambda: continued or self._create(name, family, salt, incoming, payload)
        )
        history = conversation.history
        history.first_entry = first_entry_hash(payload)
        history.answer_hashes = history.answer_hashes or answer_hashes(
            payload
        )  # if this turn fails
        return conversation

    def find_unkept(self, incoming: Incoming, payload: Payload) -> Conversation:
        """Return the conversation of a request that is only looked at; if it is not known, one that
        is not kept."""
        key = session_key(dict(incoming.headers), payload.body)
        salt = salt_of(incoming, payload.tools)
        family = family_name(salt, key)
        relatives = self.conversations.of_family(family)
        match = next(iter(relatives), None) if key.name else find_continued(relatives, payload)
        return match or self._create("", family, salt, incoming, payload)

    def _create(
        self, name: str, family: str, salt: str, incoming: Incoming, payload: Payload
    ) -> Conversation:
        limits = self.turns.model_limits.for_model(
            incoming, request_model(incoming.path, payload.body)
        )
        tenant = tenant_of(incoming)
        compactor = self.turns.make_compactor(
            name, tenant, limits, self.turns.store, format=self._codec(incoming), salt=salt
        )
        return Conversation(name, family, tenant, compactor, target_tokens=limits.target)

    def _codec(self, incoming: Incoming) -> str | Codec:
        is_older = incoming.upstream in self.settings.older_accounts
        return OLDER_ANTHROPIC if is_older and incoming.api == anthropic.NAME else incoming.api


def find_continued(relatives: Sequence[Conversation], payload: Payload) -> Conversation | None:
    """Return which of the conversations of one salt, the latest used first, a history belongs to.

    None if it begins another: sessions of a caller whose client names none differ in their history
    alone. A history that grows is known by its conversation's compactor. One that was rewound, or
    whose beginning was rewritten, holds answers of the model that stand in its conversation; the
    same question asked again holds none.
    """
    first_entry = first_entry_hash(payload)
    lengths = {
        conversation.name: conversation.compactor.matching_prefix_length(payload)
        for conversation in relatives
        if conversation.history.first_entry == first_entry
    }
    if any(lengths.values()):
        return max(relatives, key=lambda conversation: lengths.get(conversation.name, 0))
    answers = answer_hashes(payload)
    shared = {
        conversation.name: len(answers.intersection(conversation.history.answer_hashes))
        for conversation in relatives
    }
    if any(shared.values()):
        return max(relatives, key=lambda conversation: shared[conversation.name])
    return None


def first_entry_hash(payload: Payload) -> bytes:
    """Return a hash of the entry that a history begins with."""
    return hash_message(payload.codec.decode(payload.entry(0), ()))


def answer_hashes(payload: Payload) -> frozenset[bytes]:
    """Return hashes of the answers in a history that no other would have."""
    return frozenset(filter(None, map(answer_hash, payload.decode())))


def new_name(family: str, payload: Payload, relatives: Iterable[Conversation]) -> str:
    """Return a name for a new conversation, from which nothing that was sent can be read.

    It is the same in every process, unless another of its *relatives* began with the same words.
    """
    names, number = {conversation.name for conversation in relatives}, 0
    first = first_entry_hash(payload).hex()
    name = hash_parts("thread", family, first)
    while name in names:
        number += 1
        name = hash_parts("thread", family, first, str(number))
    return name
