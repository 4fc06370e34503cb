"""The conversations that a compactor knows: what was decoded of them, and their stored edits."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any

from refold.codecs.detect import (
    decode_all,
    fields_of,
    is_certain,
    open_payload,
    recognize,
)
from refold.codecs.payload import Payload, split_payload
from refold.codecs.prefix_cache import PrefixCache
from refold.compactor.engine import make_local_edits
from refold.compactor.settings import Settings
from refold.compactor.signed_thinking import edits_dropping_late_thinking, edits_dropping_thinking
from refold.compactor.state import UNREAD, ConversationState, RequestHeader, copy_json, fingerprints
from refold.compactor.unanswered import is_premature
from refold.core.profile import Profile
from refold.core.view import View
from refold.edits import Edit
from refold.messages import Message, user
from refold.models.driver import Effect
from refold.speakers import view_segments
from refold.stores.store import replacement_count
from refold.tokens.count import count_fixed
from refold.transcript import AppendLog, LazyTips, Transcript

MAX_CONVERSATIONS = 8
"""How many conversations are known again, so that a resent history costs only what is new."""


@dataclass
class ConversationCache:
    """The conversations of one compactor. Calls may come from several threads."""

    settings: Settings
    _prefixes: PrefixCache = field(default_factory=partial(PrefixCache, MAX_CONVERSATIONS))
    _states: tuple[ConversationState, ...] = ()
    _lock: Lock = field(default_factory=Lock)

    def match(self, history: Any) -> tuple[Payload, ConversationState | None]:
        """Open *history* and return the longest known state that it continues. A list is copied,
        since its owner goes on with it."""
        payload = split_payload(
            list(history) if isinstance(history, list) else history,
            fields_of(self.settings.format),
            self._prefixes.lookup,
        )
        for state in self._longest_first():
            if state.is_continued_by(payload) and state.has_format_of(payload):
                return replace(payload, codec=state.codec, head=len(state.header.head)), state
        payload = recognize(payload, self.settings.format)
        return payload, self.recall(payload)

    def recall(self, payload: Payload) -> ConversationState | None:
        """Return the longest known state whose entries *payload* begins with, whatever surrounds
        them: spelled alike, else otherwise."""
        states = [
            state
            for state in self._longest_first()
            if state.codec is payload.codec and 0 < len(state.entries) <= len(payload)
        ]
        entries = fingerprints(payload.raw_entries, payload.head) if states else ()
        for state in states:
            if state.entries.is_prefix_of(entries):
                return state
        for state in states:
            if respelled := state.respell(payload, entries):
                with self._lock:
                    self._states = tuple(
                        respelled if each is state else each for each in self._states
                    )
                return respelled
        return None

    def matching_length(self, payload: Payload) -> int:
        """Return the entries of the longest known state whose last one stands at its place in
        *payload*."""
        ends = (len(state.entries) for state in self._states if state.ends_in(payload))
        return max(ends, default=0)

    def _longest_first(self) -> list[ConversationState]:
        return sorted(self._states, key=lambda state: -len(state.entries))

    def remember(self, state: ConversationState, known: ConversationState | None) -> None:
        """Keep *state* in place of *known*, which it continues."""
        state = state.without_source()
        with self._lock:
            rest = (each for each in self._states if each is not known)
            self._states = (state, *rest)[:MAX_CONVERSATIONS]

    def clear(self) -> None:
        """Forget all conversations: what was shown of them no longer holds."""
        self._states = ()

    def edits_dropping_thinking(self, edits: Sequence[Edit]) -> list[Edit]:
        """Return the edits that take out signed thinking which *edits* invalidate in known
        conversations: those that went on since the edits were made for them."""
        late = dict[str, Edit]()
        for state in self._states:
            if all(map(state.stored.transcript.matches, edits)):
                drops = edits_dropping_thinking(state.stored, edits)
                late |= {edit.id: edit for edit in drops}
        return list(late.values())

    def advance(
        self, state: ConversationState | None, payload: Payload
    ) -> Generator[Effect, Any, ConversationState]:
        """Return *state* with what *payload* holds beyond it, and the edits that the store has."""
        since = len(state.entries) if state else 0
        if state is None or not state.header.matches(payload, payload.head):
            state = self._with_header(state, payload)
        messages = decode_all(payload, since, state.stored.transcript.messages)
        raw = fingerprints(payload.raw_entries, payload.head + since)
        state = replace(state, entries=state.entries.extend(map(copy_json, raw)))
        return (yield from self._load(state, messages, payload))

    def calibrate(self, state: ConversationState) -> ConversationState:
        """Return *state* with tokens counted from the last report that still holds for it, or as
        its model's are."""
        profile, calibrate = state.view.profile, self.settings.reports.calibrate(state.view)
        if calibrate == profile.calibrate:
            return state
        return state.with_profile(replace(profile, calibrate=calibrate))

    def apply_local_edits(self, stored: View) -> View:
        """Return the view of stored edits with those of local strategies, and without signed
        thinking that came while a stored edit was waiting."""
        view = stored.apply_valid(make_local_edits(stored, self.settings.local))
        local = self.settings.local_names
        edits = [edit for edit, _ in stored.visible_edits if edit.by not in local]
        return view.apply_valid(edits_dropping_late_thinking(view, edits))

    def _load(
        self, state: ConversationState, messages: Sequence[Any], payload: Payload
    ) -> Generator[Effect, Any, ConversationState]:
        """Return *state* grown by *messages*, with the edits that the store has for it."""
        store = self.settings.store
        since, version = len(state.stored.transcript), (yield store.version)
        if state.replacements not in (None, replacement_count(store)):
            version = yield from self._restore_lost_edits(state)
        grown = state.stored.extend(messages, payload)
        tips, is_early = grown.transcript, self._is_early(grown)
        if version != state.version or not all(map(is_early, state.waiting)):
            edits = tuple((yield partial(store.load, LazyTips(tips, 1))))
            waiting = tuple(filter(is_early, edits))
            edits = tuple(edit for edit in edits if edit not in waiting)
            stored = grown if edits == grown.edits else grown.revert().apply_valid(edits)
        else:
            fresh = (yield partial(store.load, LazyTips(tips, since + 1))) if messages else ()
            edits = tuple(fresh)
            late = tuple(filter(is_early, edits))
            stored = grown.apply_valid(edit for edit in edits if edit not in late)
            waiting = (*state.waiting, *late)
        if stored.edits != grown.edits:  # else what was written was written for others
            view = self.apply_local_edits(stored)
        else:
            stored = grown
            local = make_local_edits(grown, self.settings.local, since)
            view = state.view.rebase(grown.base, payload).apply_valid(local)
            view = replace(view, attempts=()) if view.attempts else view
        return replace(
            state,
            stored=stored,
            view=view,
            version=version,
            replacements=replacement_count(store),
            waiting=waiting,
        )

    def _restore_lost_edits(self, state: ConversationState) -> Generator[Effect, Any, int]:
        """Save the known edits of *state* that a deleted or replaced store lost (C12). Return the
        store's version then."""
        store = self.settings.store
        edits = yield partial(store.load, LazyTips(state.stored.transcript, 1))
        present = {edit.id for edit in edits}
        edits_here = (*state.stored.edits, *state.waiting)
        if lost := [edit for edit in edits_here if edit.id not in present]:
            yield partial(store.save, lost)
        version: int = yield store.version
        return version

    def _is_early(self, view: View) -> Callable[[Edit], bool]:
        """Return whether an edit must wait, since it would hide what the model has not answered.
        What a local strategy did at first sight waits for nothing."""
        messages, spoken = view.transcript.messages, partial(view_segments, view)
        local = self.settings.local_names
        return lambda edit: edit.by not in local and is_premature(edit, messages, spoken=spoken)

    def _with_header(self, state: ConversationState | None, payload: Payload) -> ConversationState:
        """Return a state with the system prompt, tools and rules of *payload*."""
        settings, body = self.settings, payload.body
        fixed = count_fixed(payload.system, payload.tools, self.count_text)
        if not body.get("model"):
            body = {**body, "model": settings.model or None}
        rules = payload.codec.rules(body)
        profile = Profile(settings.count, rules, fixed, model=settings.model)
        header = RequestHeader.of(payload)
        if state is not None:
            return replace(state.with_profile(profile), header=header)
        view = View.of(Transcript.of((), settings.salt), profile=profile, source=payload)
        is_known = settings.format is not None or is_certain(payload)
        return ConversationState(
            payload.codec, view, view, AppendLog(), header, is_known, version=UNREAD
        )

    def count_text(self, text: str) -> int:
        """Count the tokens of a text by the counter of messages."""
        return self.settings.count(user(text)) - self.settings.count(Message("user"))

    def count_pending(self, pending: Any, payload: Payload) -> int:
        """Estimate the tokens of what is about to be added to *payload*: a number, a text of the
        user, or entries in its wire form. Raises `FormatError`."""
        if pending is None or isinstance(pending, int):
            return pending or 0
        if isinstance(pending, str):
            return self.settings.count(user(pending))
        entries = open_payload(pending if isinstance(pending, list) else [pending], payload.codec)
        return sum(map(self.settings.count, decode_all(entries)))
