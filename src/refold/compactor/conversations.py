"""Knowing conversations: what the store has for them, local edits at first sight, and what was decoded already."""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from threading import Lock
from typing import Any

from refold.codecs.detect import (
    decode_all,
    fields_of,
    is_certain,
    open_payload,
    recognize,
    still_fits,
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
MAX_RESPELLINGS = 12
"""How many entries of a known conversation may be spelled otherwise than before: clients move `cache_control` every turn."""


@dataclass
class ConversationCache:
    """The conversations of one compactor. Calls may come from several threads."""

    settings: Settings
    _prefixes: PrefixCache = field(default_factory=partial(PrefixCache, MAX_CONVERSATIONS))
    _states: tuple[ConversationState, ...] = ()
    _lock: Lock = field(default_factory=Lock)

    def match(self, history: Any) -> tuple[Payload, ConversationState | None]:
        """The history taken apart, and the longest known state that it continues. A list is copied, since its
        owner goes on with it."""
        given = list(history) if isinstance(history, list) else history
        payload = split_payload(given, fields_of(self.settings.format), self._prefixes.lookup)
        for state in sorted(self._states, key=lambda known: -len(known.seen)):
            if state.goes_on_in(payload) and is_sure(state, payload):
                return replace(payload, codec=state.codec, head=len(state.frame.head)), state
        payload = recognize(payload, self.settings.format)
        return payload, self.recall(payload)

    def recall(self, payload: Payload) -> ConversationState | None:
        """The longest known state that *payload* continues."""
        known = [
            state
            for state in self._states
            if state.codec is payload.codec and 0 < len(state.seen) <= len(payload)
        ]
        wires = fingerprints(payload.raw_entries, payload.head) if known else ()
        exact = max(
            (s for s in known if s.seen.is_prefix_of(wires)),
            key=lambda s: len(s.seen),
            default=None,
        )
        if exact is not None:
            return exact
        respelled = (
            self._respelled(state, payload) for state in sorted(known, key=lambda s: -len(s.seen))
        )
        return next((state for state in respelled if state), None)

    def matching_length(self, payload: Payload) -> int:
        """Entries of the longest known state whose last one stands at its place in *payload*."""
        return max(
            (len(state.seen) for state in self._states if _ends_in(state, payload)), default=0
        )

    def _respelled(self, state: ConversationState, payload: Payload) -> ConversationState | None:
        """The state with its entries as *payload* spells them, where that says the same."""
        wires, said = (
            fingerprints(payload.raw_entries, payload.head),
            state.kept.transcript.messages,
        )
        pairs = enumerate(zip(state.seen, wires, strict=False))
        changed = list(
            islice((at for at, (one, other) in pairs if one != other), MAX_RESPELLINGS + 1)
        )
        decode = payload.codec.decode
        if len(changed) > MAX_RESPELLINGS or any(
            decode(payload.entry(at), said[:at]) != said[at] for at in changed
        ):
            return None
        seen = list(state.seen)
        for at in changed:
            seen[at] = copy_json(wires[at])
        known = replace(state, seen=AppendLog(seen))
        with self._lock:
            self._states = tuple(known if other is state else other for other in self._states)
        return known

    def remember(self, state: ConversationState, known: ConversationState | None) -> None:
        """Keep the state, in place of the one it continues."""
        state = state.without_source()
        with self._lock:
            others = (other for other in self._states if other is not known)
            self._states = (state, *others)[:MAX_CONVERSATIONS]

    def clear(self) -> None:
        """Know none again: what was shown of them no longer holds."""
        self._states = ()

    def edits_dropping_thinking(self, edits: Sequence[Edit]) -> list[Edit]:
        """What takes out the signed thinking that *edits* unbind in known conversations which went on since the edits
        were made for them."""
        found = dict[str, Edit]()
        for state in self._states:
            if all(map(state.kept.transcript.matches, edits)):
                found |= {late.id: late for late in edits_dropping_thinking(state.kept, edits)}
        return list(found.values())

    def advance(
        self, state: ConversationState | None, payload: Payload
    ) -> Generator[Effect, Any, ConversationState]:
        """The state with what *payload* holds beyond it."""
        since = len(state.seen) if state else 0
        if state is None or not state.frame.holds(payload, payload.head):
            state = self._framed(state, payload)
        new = decode_all(payload, since, state.kept.transcript.messages)
        seen = state.seen.extend(
            map(copy_json, fingerprints(payload.raw_entries, payload.head + since))
        )
        return (yield from self._load(state, new, payload, seen))

    def calibrate(self, state: ConversationState) -> ConversationState:
        """The state with tokens counted from the last report that still speaks of it, or as its model's are."""
        profile, calibrate = state.view.profile, self.settings.reports.calibrate(state.view)
        return (
            state
            if calibrate == profile.calibrate
            else state.through(replace(profile, calibrate=calibrate))
        )

    def apply_local_edits(self, kept: View) -> View:
        """The view of stored edits with those of local strategies, and without signed thinking that came while one of
        them was held back."""
        view = kept.apply_valid(make_local_edits(kept, self.settings.local))
        return view.apply_valid(
            edits_dropping_late_thinking(
                view,
                [
                    edit
                    for edit, _ in kept.visible_edits
                    if edit.by not in self.settings.local_names
                ],
            )
        )

    def _load(
        self, state: ConversationState, new: Sequence[Any], payload: Payload, seen: AppendLog[Any]
    ) -> Generator[Effect, Any, ConversationState]:
        """*state* grown by *new*, so that *seen* is what it has seen, with the edits that the store has for it."""
        since, version = len(state.kept.transcript), (yield self.settings.store.version)
        if state.renewed not in (None, replacement_count(self.settings.store)):
            version = yield from self._written_again(state)
        kept = state.kept.extend(new, payload)
        said, spoken = kept.transcript.messages, partial(view_segments, kept)
        if version != state.version or not all(
            is_premature(edit, said, spoken=spoken) for edit in state.held
        ):
            edits, held = self._timely(
                (yield partial(self.settings.store.load, LazyTips(kept.transcript, 1))), kept
            )
            stored = kept if edits == kept.edits else kept.revert().apply_valid(edits)
        else:
            late = (
                (yield partial(self.settings.store.load, LazyTips(kept.transcript, since + 1)))
                if new
                else ()
            )
            edits, held = self._timely(late, kept)
            stored, held = kept.apply_valid(edits), (*state.held, *held)
        if stored.edits != kept.edits:  # else what was written was written for others
            kept, view = stored, self.apply_local_edits(stored)
        else:
            view = state.view.rebase(kept.base, payload).apply_valid(
                make_local_edits(kept, self.settings.local, since)
            )
            view = replace(view, attempts=()) if view.attempts else view
        renewed = replacement_count(self.settings.store)
        return replace(
            state, kept=kept, view=view, seen=seen, version=version, renewed=renewed, held=held
        )

    def _written_again(self, state: ConversationState) -> Generator[Effect, Any, int]:
        """The version of a store that was deleted or replaced, with the edits that are known of *state* in it (C12)."""
        there = {
            edit.id
            for edit in (
                yield partial(self.settings.store.load, LazyTips(state.kept.transcript, 1))
            )
        }
        lost = [edit for edit in (*state.kept.edits, *state.held) if edit.id not in there]
        if lost:
            yield partial(self.settings.store.save, lost)
        version: int = yield self.settings.store.version
        return version

    def _timely(
        self, edits: Iterable[Edit], kept: View
    ) -> tuple[tuple[Edit, ...], tuple[Edit, ...]]:
        """Those of *edits* that may show now, and those that wait. What a local strategy did at first sight waits for
        nothing."""
        said, spoken = kept.transcript.messages, partial(view_segments, kept)
        held = tuple(
            e
            for e in edits
            if e.by not in self.settings.local_names and is_premature(e, said, spoken=spoken)
        )
        waiting = {edit.id for edit in held}
        return tuple(edit for edit in edits if edit.id not in waiting), held

    def _framed(self, state: ConversationState | None, payload: Payload) -> ConversationState:
        """A state whose system prompt, tools and rules are those of *payload*."""
        fixed = count_fixed(payload.system, payload.tools, self.count_text)
        body = (
            payload.body
            if payload.body.get("model")
            else {**payload.body, "model": self.settings.model or None}
        )
        profile = Profile(
            self.settings.count, payload.codec.rules(body), fixed, model=self.settings.model
        )
        if state is None:
            bare = View.of(Transcript.of((), self.settings.salt), profile=profile, source=payload)
            certain = self.settings.format is not None or is_certain(payload)
            return ConversationState(
                payload.codec, bare, bare, AppendLog(), RequestHeader.of(payload), certain, UNREAD
            )
        return replace(state.through(profile), frame=RequestHeader.of(payload))

    def count_text(self, text: str) -> int:
        """Tokens of a text by the counter of messages."""
        return self.settings.count(user(text)) - self.settings.count(Message("user"))

    def count_pending(self, pending: Any, payload: Payload) -> int:
        """Estimated tokens of what is about to be added to *payload*: a number, a text of the user, or
        entries in its wire form. Raises `FormatError`."""
        if pending is None or isinstance(pending, int):
            return pending or 0
        if isinstance(pending, str):
            return self.settings.count(user(pending))
        entries = open_payload(pending if isinstance(pending, list) else [pending], payload.codec)
        return sum(map(self.settings.count, decode_all(entries)))


def _ends_in(state: ConversationState, payload: Payload) -> bool:
    at, said = len(state.seen) - 1, state.kept.transcript.messages
    if state.codec is not payload.codec or not 0 <= at < len(payload):
        return False
    return payload.codec.decode(payload.entry(at), said[:at]) == said[at]


def is_sure(state: ConversationState, payload: Payload) -> bool:
    """Is *payload*, which goes on from *state*, surely of its format? Only what is new is looked at."""
    start = len(state.frame.head) + len(state.seen)
    return state.certain or still_fits(state.codec, payload, start)
