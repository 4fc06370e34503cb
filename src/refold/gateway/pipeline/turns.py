"""A turn, which is one request of a conversation: finding the conversation and showing its view."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from hashlib import blake2b
from typing import Any, NamedTuple

from refold.codecs import anthropic
from refold.codecs.codec import Codec, Payload, with_rules
from refold.codecs.detect import open_payload
from refold.codecs.json_text import PrefixCache
from refold.compactor.compactor import Compactor
from refold.compactor.conversations import ENTRY_BYTES
from refold.compactor.hooks import OnEvent
from refold.compactor.loading import RELOAD_SECONDS
from refold.compactor.pins import Pins, keep_pinned
from refold.core.strategy import Strategy
from refold.core.view import View
from refold.errors import FormatError
from refold.gateway.conversations.conversations import Conversation, Conversations
from refold.gateway.conversations.persistence import (
    RowLedger,
    defer_edits,
    drop_thinking_after_manual_edit,
    flush_unsaved,
    reapply_result_edits,
    repair_interrupted,
    result_tips,
    save_edits,
)
from refold.gateway.conversations.stores import SharedSummaries, TentativeStore, hash_parts
from refold.gateway.conversations.workers import DeadlineExceeded, Workers
from refold.gateway.exchange import Incoming
from refold.gateway.http.request import request_model
from refold.gateway.ledger.rows import ledger_listener
from refold.gateway.ledger.writer import LedgerWriter
from refold.gateway.metrics import Counters
from refold.gateway.pipeline.limits import (
    ModelLimits,
    TokenLevels,
    manual_budget,
    position_after_signed_thinking,
    strategies_for,
)
from refold.gateway.pipeline.upstream_errors import ErrorFigures
from refold.gateway.settings import Settings
from refold.models.fallback import CircuitBreaker
from refold.stores.store import Store
from refold.text.json_values import parse_or_none, text_at
from refold.transcript import answer_hash, hash_message

MIN_CACHED_SHARE = 0.1
"""Share of its tokens that a history has in common with the latest one, if the provider's cache
still holds it."""
MAX_MESSAGES = 100_000
"""Maximum messages of a request that is read, as for Anthropic. Tiny ones take some fifty times
their bytes in memory, and many seconds to summarise."""
MAX_JSON_SIGNS = 2_000_000
"""Maximum commas and opening brackets of a request that is read; texts of 2 million tokens have
fewer. They bound the values in it, and parsing those holds up all requests of the process."""


@dataclass(frozen=True, eq=False)
class Resources:
    """What a process needs to decide requests."""

    settings: Settings
    store: Store
    counters: Counters
    workers: Workers
    model_limits: ModelLimits
    conversations: Conversations
    prefixes: PrefixCache
    """Parsed prefixes of each caller's requests."""
    breaker: CircuitBreaker
    """Circuit breaker of the store."""
    ledger_writer: LedgerWriter | None
    """None if no ledger is kept."""

    @cached_property
    def summaries(self) -> SharedSummaries:
        """Claims and prepared summaries, shared by the processes with this store."""
        asks = self.settings.ask is not None
        return SharedSummaries(self.store, self.workers.allow_waiting, asks=asks)

    def note_session(self, conversation: Conversation) -> None:
        """Enter the conversation's latest request in the list of sessions, unless there is no
        ledger or its caller's key is not verified yet."""
        if self.ledger_writer is not None and not isinstance(self.store, TentativeStore):
            self.ledger_writer.note_session(conversation)

    def make_compactor(
        self,
        name: str,
        tenant: str,
        levels: TokenLevels,
        format: str | Codec,
        salt: str,
        pins: Pins,
    ) -> Compactor:
        """Return a compactor for the conversation *name* with these *pins*. It makes only local
        edits unless told to compact."""
        on_event: OnEvent | None = self.settings.on_event
        if self.ledger_writer is not None:
            on_event = ledger_listener(self.ledger_writer.book, tenant, name, on_event)
            if isinstance(self.store, TentativeStore):
                on_event = partial(self.store.defer, on_event)
        return Compactor(
            keep_pinned(strategies_for(self.settings, levels.target), pins),
            manual_budget(levels),
            self.store,
            ask=None if self.settings.ask is None else self.workers.ask,
            format=format,
            salt=salt,
            on_event=on_event,
            clock=self.settings.clock,
        )


@dataclass(frozen=True, eq=False)
class Turn:
    """One request of a conversation. To call its methods, hold the conversation (`hold`)."""

    resources: Resources
    incoming: Incoming
    payload: Payload
    """The opened request. Its body names the model, even if only the request's path does."""
    conversation: Conversation
    in_memory: bool = False
    """Whether the store is bypassed, and the edits that this process has shown are used instead."""

    @property
    def model(self) -> str:
        """Model that the request names; empty if it names none."""
        return model_of(self.payload)

    @property
    def levels(self) -> TokenLevels:
        """Token levels for the request's model."""
        return self.resources.model_limits.for_conversation(
            self.incoming, self.model, self.conversation.refusal
        )

    @property
    def compactor(self) -> Compactor:
        """The conversation's compactor, or a copy of it that works in memory."""
        return self._memory_compactor if self.in_memory else self.conversation.compactor

    @property
    def store(self) -> Store:
        """Store of the edits."""
        return self.conversation.shown.store if self.in_memory else self.resources.store

    @cached_property
    def _memory_compactor(self) -> Compactor:
        levels, shown = self.levels, self.conversation.shown
        return self.conversation.compactor.with_settings(
            strategies=self.keep_pinned(strategies_for(self.resources.settings, levels.target)),
            budget=manual_budget(levels),
            store=shown.store,
            ledger=RowLedger(shown.unsaved_rows),
        )

    def keep_pinned(self, strategies: Iterable[Strategy]) -> tuple[Strategy, ...]:
        """Return *strategies* that keep pinned messages; in memory, the pins as last loaded."""
        return keep_pinned(strategies, self.conversation.pins, reads=not self.in_memory)

    def hold(self, seconds: float) -> AbstractContextManager[None]:
        """Lock the conversation, in memory only its edits there. Raises `ConversationBusy`."""
        return self.conversation.hold(seconds, memory=self.in_memory)

    def show(self, *, first: bool = False) -> View:
        """Return the view with its stored edits, and local edits of new messages.

        *first*: if the history is new here, also reapply earlier decisions about its single
        results. Raises `StoreError`.
        """
        if self.in_memory:
            return self.compactor.show(self.payload)
        conversation, store = self.conversation, self.resources.store
        self._set_target()
        flush_unsaved(conversation, store)
        view = self.compactor.show(self.payload)
        if conversation.shown.is_interrupted and repair_interrupted(conversation, view, store):
            view = self.compactor.show(self.payload)
        conversation.shown.is_interrupted = False
        if drop_thinking_after_manual_edit(conversation, view, store):
            view = self.compactor.show(self.payload)
        now = self.resources.settings.clock()
        if first and not conversation.history.is_continued_by(view):
            view = self._reapply_result_edits(view)
        elif not 0 <= now - conversation.shown.results_loaded_at < RELOAD_SECONDS:
            store.load(result_tips(conversation.tenant, view.transcript.messages))
        else:
            return view
        if conversation.pins is not None:
            conversation.pins.load()  # which marks them as used in the store, too
        conversation.shown.results_loaded_at = now
        return view

    def save(self, view: View) -> None:
        """Keep the new edits of *view*, which is about to be sent, in memory and, if available, the
        store. Raises `StoreError`, and `DeadlineExceeded` if something else has been sent by
        now."""
        job = self.resources.workers.current_job()
        if self.in_memory:
            defer_edits(self.conversation, view)
        elif job is not None and job.is_abandoned:
            raise DeadlineExceeded
        else:
            save_edits(self.conversation, view, self.resources.store)

    def fits_unedited(self, view: View) -> bool:
        """Return whether the request may be sent unedited: below the hard level, and with no signed
        thinking after a visible edit."""
        hard, binds = self.levels.hard, view.profile.rules.binds
        stop = position_after_signed_thinking(view) if binds and view.visible_edits else 0
        is_bound = any(placed.edit.start < stop for placed in view.visible_edits)
        return not is_bound and (hard is None or view.tokens_unedited < hard)

    def is_cache_broken(self, view: View) -> bool:
        """Return whether the provider's cache holds little of *view*, as far as this process knows:
        the latest request had another prefix or another model."""
        latest, base = self.conversation.latest, view.base
        if latest is not None and latest.model != self.model:
            return True
        shared = self.conversation.history.find_shared_length(view)
        if shared is None:
            return False
        return base.tokens(0, shared) < MIN_CACHED_SHARE * base.tokens(0, len(view.transcript))

    def _set_target(self) -> None:
        """Update the strategies' target, which changes with the model or its window."""
        conversation, target = self.conversation, self.levels.target
        if conversation.target_tokens != target:
            conversation.target_tokens = target
            strategies = keep_pinned(
                strategies_for(self.resources.settings, target), conversation.pins
            )
            conversation.compactor = conversation.compactor.with_settings(strategies=strategies)

    def _reapply_result_edits(self, view: View) -> View:
        """Return *view*, of a history that is new here, with single results shown as they were
        elsewhere."""
        history, api = self.conversation.history, self.incoming.api
        count = reapply_result_edits(self.conversation, view, self.resources.store)
        has_answers = any(message.role == "assistant" for message in view.transcript.messages)
        if count or (history.tips and has_answers):
            self.resources.counters.add("prefix_breaks", api=api)
        if not count:
            return view
        self.resources.counters.add("decided_again", count, api=api)
        return self.compactor.show(self.payload)


@dataclass(eq=False)
class Progress:
    """State of the work on a request, from which a fallback continues if the work fails."""

    turn: Turn | None = None
    """Turn of the conversation that the request belongs to."""
    figures: ErrorFigures | None = None
    """Figures of an upstream's error, which is learned from only once."""


def model_of(payload: Payload) -> str:
    """Return the model that an opened request names; empty if it names none."""
    model = payload.body.get("model")
    return model if isinstance(model, str) else ""


# --- the conversation of a request ----------------------------------------------------------------
# Named by its client, or recognised by its history.
#
# An edit is found by the tip of the history it was made for (docs/formats.md). The salt of these
# tips is made here, from the API, the caller's credential and the tools. So the same history has
# different tips for two tenants, and for an agent and a sub-agent with other tools. The client's
# session key is not part of the salt, so a fork under a new key finds the decisions about the past
# that it shares.

OLDER_ANTHROPIC = with_rules(anthropic, anthropic.older_rules)
"""Messages codec for accounts whose thinking is not bound to its prefix (AN-8)."""


def open_request(resources: Resources, incoming: Incoming) -> Payload:
    """Parse a request, except for the prefix that its caller has sent before. Raises `FormatError`,
    also above `MAX_JSON_SIGNS` or `MAX_MESSAGES`."""
    body = incoming.body
    if len(body) > MAX_JSON_SIGNS < sum(map(body.count, (b",", b"[", b"{"))):
        raise FormatError(f"it has more than {MAX_JSON_SIGNS:,} commas and brackets")
    lookup = partial(resources.prefixes.lookup, scope=incoming.credential.encode())
    payload = with_model(open_payload(incoming.body, incoming.api, lookup), incoming.path)
    if len(payload) > MAX_MESSAGES:
        raise FormatError(f"{len(payload):,} messages are more than {MAX_MESSAGES:,}")
    codec = _codec(resources.settings, incoming)
    return payload if isinstance(codec, str) else replace(payload, codec=codec)


def with_model(payload: Payload, path: str) -> Payload:
    """Return *payload* with the model that the path names added to its body; the same object if the
    path names none."""
    model = request_model(path, payload.body)
    if not model or model == payload.body.get("model"):
        return payload
    return replace(payload, body={**payload.body, "model": model})


def open_turn(
    resources: Resources, incoming: Incoming, payload: Payload, *, is_kept: bool = True
) -> Turn:
    """Return the turn of a request, in memory while the store is not available."""
    conversation = find_conversation(resources, incoming, payload, is_kept=is_kept)
    is_usable = not conversation.is_stuck and resources.breaker.allows()
    return Turn(resources, incoming, payload, conversation, in_memory=not is_usable)


def find_conversation(
    resources: Resources, incoming: Incoming, payload: Payload, *, is_kept: bool = True
) -> Conversation:
    """Return the conversation of a request, a new one if none is known. Without *is_kept*, for a
    request that is only inspected, a new one is not kept."""
    conversations = resources.conversations
    key = session_key(dict(incoming.headers), payload.body)
    salt = hash_parts(incoming.api, incoming.credential, tools_fingerprint(payload.tools))
    family = hash_parts("thread", salt, *key)
    create = partial(create_conversation, resources, family, salt, incoming, payload)
    if key.name:
        first_entry, name, match = b"", family, conversations.get(family)
    else:
        first_entry = hash_message(payload.codec.decode(payload.entry(0), ()))
        relatives = conversations.of_family(family)
        match = find_continued(relatives, payload, first_entry)
        name = match.name if match else new_name(family, first_entry, relatives)
    if not is_kept:
        return match or create("")
    size = max(len(incoming.body), ENTRY_BYTES * len(payload))
    conversation = conversations.get_or_create(name, size, lambda: match or create(name))
    conversation.history.first_entry = first_entry
    return conversation


def create_conversation(
    resources: Resources,
    family: str,
    salt: str,
    incoming: Incoming,
    payload: Payload,
    name: str,
    *,
    tenant: str = "",
) -> Conversation:
    """Return a new conversation, not yet in `resources.conversations`. *tenant* defaults to that of
    *incoming*'s credential."""
    tenant = tenant or tenant_of(incoming.api, incoming.credential)
    levels = resources.model_limits.for_model(incoming, model_of(payload))
    format = _codec(resources.settings, incoming)
    pins = Pins(resources.store, name)
    compactor = resources.make_compactor(name, tenant, levels, format, salt, pins)
    conversation = Conversation(name, family, tenant, compactor, levels.target, pins)
    conversation.history.opened = payload
    return conversation


def _codec(settings: Settings, incoming: Incoming) -> str | Codec:
    is_older = incoming.upstream in settings.older_accounts
    return OLDER_ANTHROPIC if is_older and incoming.api == anthropic.NAME else incoming.api


def find_continued(
    relatives: Sequence[Conversation], payload: Payload, first_entry: bytes
) -> Conversation | None:
    """Return the conversation among *relatives* (of one salt, the latest used first) of a history.

    None if it begins a new one: sessions of a caller whose client names none differ in their
    history alone. A history that grows is recognised by its conversation's compactor. One that was
    rewound, or whose beginning was rewritten, contains answers of the model that are in its
    conversation. The same question asked again contains none.
    """
    lengths = [
        conversation.compactor.matching_prefix_length(payload)
        if conversation.history.first_entry == first_entry
        else 0
        for conversation in relatives
    ]
    if relatives and not any(lengths):
        answers = {*map(answer_hash, payload.decode())} - {None}
        lengths = [
            len(answers.intersection(conversation.history.answer_hashes))
            for conversation in relatives
        ]
    longest = max(lengths, default=0)
    return relatives[lengths.index(longest)] if longest else None


def new_name(family: str, first_entry: bytes, relatives: Iterable[Conversation]) -> str:
    """Return a name for a new conversation, which reveals nothing that was sent.

    It is the same in every process, unless one of its *relatives* began with the same message.
    """
    names, number = {conversation.name for conversation in relatives}, 0
    first = first_entry.hex()
    name = hash_parts("thread", family, first)
    while name in names:
        number += 1
        name = hash_parts("thread", family, first, str(number))
    return name


# --- names of conversations -----------------------------------------------------------------------


AGENT_HEADER = "x-claude-code-agent-id"
"""Header that names a sub-agent of Claude Code, which shares its session's id."""
SESSION_HEADER = "x-claude-code-session-id"
"""Header that names a session of Claude Code, to which all its sub-agents belong."""
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
    """The client's name for its conversation."""

    name: str
    """The header or field; empty if the client sends none."""
    value: str


def session_key(headers: Mapping[str, str], body: Mapping[str, Any]) -> SessionKey:
    """Return the most specific key of a request: a header, else `prompt_cache_key`, else
    `metadata.user_id`; an empty one if it has none of these."""
    for name in SESSION_HEADERS:
        if value := headers.get(name):
            if name == SESSION_HEADER:
                return SessionKey(f"{name}+agent-id", f"{value}/{headers.get(AGENT_HEADER, '')}")
            return SessionKey(name, value)
    if cache_key := text_at(body, "prompt_cache_key"):
        return SessionKey("prompt_cache_key", cache_key)
    if user := text_at(body, "metadata", "user_id"):  # a session, or a JSON object with one
        return SessionKey("metadata.user_id", text_at(parse_or_none(user), "session_id") or user)
    return SessionKey("", "")


def tools_fingerprint(tools: tuple[str, ...]) -> str:
    """Return a fingerprint of tools (canonical JSON) in any order; empty if there are none."""
    text = "\n".join(sorted(tools)).encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=8).hexdigest() if tools else ""


@lru_cache(maxsize=1_000)
def tenant_of(api: str, credential: str) -> str:
    """Return the hash that all conversations of one caller over one API share."""
    return hash_parts(api, credential)
