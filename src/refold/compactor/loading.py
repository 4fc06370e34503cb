"""The state of a history at the start of a turn, with stored edits, and what is due for it."""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import ceil
from typing import Any

from refold.budget.budget import Budget, Check
from refold.budget.triggers import LastAttempt, Moment
from refold.codecs.codec import Codec, Payload
from refold.codecs.detect import is_certain, open_payload
from refold.codecs.json_text import JsonList
from refold.compactor.conversations import ConversationState, RequestHeader, copy_json, fingerprints
from refold.compactor.late_edits import (
    continues_assistant_message,
    edits_dropping_late_thinking,
    make_premature_test,
    may_drop_more_thinking,
)
from refold.compactor.settings import Settings
from refold.core.profile import Profile
from refold.core.strategy import Strategy, require_step
from refold.core.view import View
from refold.edits import Edit
from refold.errors import require_int
from refold.messages import user
from refold.models.driver import Effect
from refold.stores.store import Store, replacement_count
from refold.tokens.count import count_fixed
from refold.tokens.model_table import LONGEST_NAME, find_window
from refold.transcript import AppendLog, LazyTips, Transcript

RELOAD_SECONDS = 3_600.0
"""Seconds after which all edits of a conversation are loaded again even if none has changed. This
tells a store which edits are in use (`refold.stores.sql.SQLStore.prune`)."""
HEADROOM = 20_000
"""Tokens kept free in the window when the model changes, at most a tenth of the window."""


def load(
    settings: Settings,
    cached: ConversationState | None,
    payload: Payload,
    budget: Budget | None = None,
) -> Generator[Effect, Any, ConversationState]:
    """Return *cached* extended by the new messages of *payload* and the edits in the store, with
    calibrated token counts, before any new compaction. *budget* replaces that of the settings."""
    state = cached
    if state is None or not state.header.matches(payload, payload.head):
        state = _with_header(settings, state, payload)
    is_calibrated = state is cached and not settings.reports.newest
    since, store, raw = len(state.entries), settings.store, payload.raw_entries
    entries, grown = _decode_rest(state, payload)
    version, replacements = (yield store.version), replacement_count(store)
    if state.replacements not in (None, replacements):
        version, replacements = yield from _restore_lost_edits(store, state)
    must_wait, now = _make_premature_test(settings, grown), settings.clock()
    is_fresh = (  # then only edits of new messages are loaded
        version == state.version
        and 0 <= now - state.loaded_at < RELOAD_SECONDS
        and all(map(must_wait, state.waiting))
        and not (
            grown.edits
            and continues_assistant_message(grown, since)
            and any(map(must_wait, grown.edits))
        )
    )
    start = since if is_fresh else 0
    edits: Sequence[Edit] = ()
    if start < len(grown.transcript):
        edits = yield partial(store.load, LazyTips(grown.transcript, start + 1))
        if not isinstance(edits, Sequence):
            raise TypeError(f"the store's load must return a sequence of edits: {store!r}")
    waiting = tuple(filter(must_wait, edits))
    edits = tuple(edit for edit in edits if edit not in waiting)
    if is_fresh:
        stored, waiting, now = grown.apply_valid(edits), (*state.waiting, *waiting), state.loaded_at
    else:
        stored = grown if edits == grown.edits else grown.revert().apply_valid(edits)
    stored, view = _show(settings, state.view, grown, stored, since)
    state = state._replace(
        stored=stored,
        view=view,
        entries=entries,
        version=version,
        loaded_at=now,
        replacements=replacements,
        waiting=waiting,
        size=len(raw.source) if isinstance(raw, JsonList) else 0,
    )
    state = state if is_calibrated else calibrate(settings, state)
    if cached is None:
        return _mark_first_sight(settings, state)
    return _follow_model(budget or settings.budget, cached, state)


def _decode_rest(state: ConversationState, payload: Payload) -> tuple[AppendLog[Any], View]:
    """Return copies of the entries of *payload*, which continues *state*, and the view of them."""
    since = len(state.entries)
    messages = payload.decode(since, state.stored.transcript.messages)
    raw = fingerprints(payload.raw_entries, payload.head + since)
    grown = state.stored.rebase(state.stored.base.extend(messages), payload)
    return state.entries.extend(copy_json(list(raw))), grown


def _show(
    settings: Settings, before: View, grown: View, stored: View, since: int
) -> tuple[View, View]:
    """Return the view with *stored* edits, and the one with local edits too. If the stored edits
    are those of *grown* and no thinking may come late (`may_drop_more_thinking`), *before* is
    reused and only messages from position *since* on get local edits."""
    is_late = bool(grown.edits) and may_drop_more_thinking(grown, since)
    if is_late or stored.edits != grown.edits:
        return stored, apply_local_edits(settings, stored)
    local = make_local_edits(grown, settings.local, since)
    view = before.rebase(grown.base, grown.source).apply_valid(local)
    return grown, replace(view, attempts=()) if view.attempts else view


def calibrate(settings: Settings, state: ConversationState) -> ConversationState:
    """Return *state* calibrated by its last current report, else by its model's ratio."""
    profile, calibrate = state.view.profile, settings.reports.calibrate(state.view)
    if calibrate == profile.calibrate:
        return state
    return state.with_profile(replace(profile, calibrate=calibrate))


def apply_local_edits(settings: Settings, stored: View) -> View:
    """Return the view with stored and local edits, without signed thinking that came while a stored
    edit was waiting."""
    view = stored.apply_valid(make_local_edits(stored, settings.local))
    edits = [edit for edit, _ in stored.visible_edits if not settings.is_first_sight(edit)]
    return view.apply_valid(edits_dropping_late_thinking(view, edits))


def make_local_edits(view: View, strategies: Iterable[Strategy], since: int = 0) -> list[Edit]:
    """Return the edits of local strategies for the messages from position *since* on.

    *view* must have stored edits only: local strategies do not see each other's edits. Of two edits
    of one message the smaller is used, or the earlier strategy's if they are equal. None is used
    that makes its message no smaller.
    """
    best: dict[int, tuple[int, Edit]] = {}
    for strategy in strategies:
        previous, repeats = None, 0
        for edit in strategy(view, since):  # type: ignore[call-arg]  # local ones take `since`
            repeats = repeats + 1 if edit == previous else 0
            require_step(edit, strategy, repeats)
            previous = edit
            if isinstance(edit, Edit):
                tokens = sum(map(view.profile.count, edit.insert))
                if tokens < best.get(edit.start, (view.base.tokens(edit.start, edit.stop),))[0]:
                    best[edit.start] = (tokens, edit)
    return [best[start][1] for start in sorted(best)]


def count_pending(settings: Settings, pending: Any, codec: Codec) -> int:
    """Return the estimated tokens of *pending*: None (0), a number of tokens, a user's text, or one
    entry or more in the form of *codec*. Raises `FormatError`, ValueError for a negative number."""
    if pending is None:
        return 0
    if isinstance(pending, int):
        require_int(0, pending=pending)
        return pending
    if isinstance(pending, str):
        return settings.count(user(pending))
    entries = open_payload(pending if isinstance(pending, list) else [pending], codec)
    return sum(map(settings.count, entries.decode()))


def _restore_lost_edits(
    store: Store, state: ConversationState
) -> Generator[Effect, Any, tuple[int, int]]:
    """Save the known edits of *state* that a deleted or replaced store lost. Return the store's new
    version and replacement count."""
    edits = yield partial(store.load, LazyTips(state.stored.transcript, 1))
    present = {edit.id for edit in edits}
    if lost := [edit for edit in (*state.stored.edits, *state.waiting) if edit.id not in present]:
        yield partial(store.save, lost)
    return (yield store.version), replacement_count(store)


def _mark_first_sight(settings: Settings, state: ConversationState) -> ConversationState:
    """Return a newly seen *state*, marked as compacted up to the end of its last stored edit."""
    length = max((edit.stop for edit in state.stored.edits), default=0)
    return state._replace(mark=LastAttempt(length, settings.clock()), settled=state.stored.edits)


def _follow_model(
    budget: Budget, before: ConversationState, state: ConversationState
) -> ConversationState:
    """Return *state*, which continues *before*, with a cap if its new model has a smaller window:
    it must fit that before it is sent."""
    names = before.view.profile.model, state.view.profile.model
    if names[0] == names[1]:
        return state
    old, new = (find_window(name, budget.window).window for name in names)
    widest = max(state.widest, old.room if old else 0)
    is_smaller = new is not None and new.room < widest
    cap = new.room - min(HEADROOM, new.room // 10) if new is not None and is_smaller else None
    return state._replace(cap=cap, widest=widest, mark=replace(state.mark, tokens=None))


def _make_premature_test(settings: Settings, view: View) -> Callable[[Edit], bool]:
    """Return a predicate of edits that must wait because they would hide what the model has not
    answered. Edits made at first sight never wait."""
    test = cache(lambda: make_premature_test(view))  # most turns have no edit to ask about
    return lambda edit: not settings.is_first_sight(edit) and test()(edit)


def _with_header(
    settings: Settings, state: ConversationState | None, payload: Payload
) -> ConversationState:
    """Return a state with the system prompt, tools and rules of *payload*."""
    named = payload.body.get("model") or payload.body.get("modelId")  # the latter in Converse
    count, model = settings.count, str(named or settings.model)[:LONGEST_NAME]
    rules = payload.codec.rules({**payload.body, "model": model or None})
    framing = count(user(""))
    require_int(0, **{"the tokens that `count` gives for a message": framing})
    fixed = count_fixed(payload.system, payload.tools, lambda text: count(user(text)) - framing)
    profile, header = Profile(count, rules, fixed, model=model), RequestHeader.of(payload)
    if state is not None:
        return state.with_profile(profile)._replace(header=header)
    view = View.of(Transcript.of((), settings.salt), profile=profile)
    is_known = settings.format is not None or is_certain(payload)
    return ConversationState(payload.codec, view, view, AppendLog(), header, is_known)


# --- when a compaction is due, and how far it goes ----------------------------------------------


@dataclass(frozen=True, slots=True)
class Schedule:
    """A budget applied to states, with pending tokens and the current time."""

    budget: Budget
    clock: Callable[[], float]
    pending: int = 0
    """Estimated tokens about to be added to the request."""

    @classmethod
    def of(cls, settings: Settings, budget: Budget | None = None, pending: int = 0) -> "Schedule":
        """Return the schedule of a compactor, with another *budget* if one is given."""
        return cls(budget or settings.budget, settings.clock, pending)

    def check(self, state: ConversationState) -> Check:
        """Return what is due for *state* and, if it is held back, why."""
        now = self.clock()
        idle = None if state.used_at is None else now - state.used_at
        moment = self.budget.observe(state.view, self.pending, state.mark, now, idle)
        check = _check_cap(state, moment) or self.budget.judge(moment)
        return replace(check, hold_reason=self._hold_reason(check, state))

    def compute_goal(self, state: ConversationState, check: Check | None) -> int:
        """Return the number of tokens to reduce the view to, so that the request fits with the
        pending tokens. *check* is what triggered the compaction, None if it is forced."""
        moment = self.budget.observe(state.view, self.pending)
        goal = self.budget.compute_goal(moment, check)
        if state.cap is not None:
            goal = min(goal, state.cap // 2)
        return max(0, goal - (moment.tokens - state.view.tokens))

    def mark_attempt(self, state: ConversationState, when: float) -> ConversationState:
        """Return *state* after an attempt. The next one waits until the request has grown."""
        view = state.view
        estimate = view.tokens_uncalibrated + self.pending
        tokens = view.profile.calibrate(estimate)
        return state._replace(mark=LastAttempt(len(view.transcript), when, tokens, estimate))

    def _hold_reason(self, check: Check, state: ConversationState) -> str:
        """Return why a due compaction is not tried again: too little growth since; else ""."""
        mark, hysteresis = state.mark, self.budget.hysteresis
        if check.level != "hard" or check.is_periodic or mark.tokens is None or not hysteresis:
            return ""
        then = mark.tokens if mark.estimate is None else state.view.profile.calibrate(mark.estimate)
        step = ceil(hysteresis * max(check.threshold or 0, then))
        if check.tokens >= then + step:
            return ""
        return (
            f"compaction was tried at {then} tokens; "
            f"it is tried again {step} tokens later, at {then + step}"
        )


def _check_cap(state: ConversationState, moment: Moment) -> Check | None:
    if state.cap is None or moment.tokens < state.cap:
        return None
    reason = (
        f"the model is {state.view.profile.model} now, with less room than before: "
        f"{moment.tokens} of {state.cap} tokens"
    )
    return Check("hard", moment.tokens, state.cap, reason)


def is_below_budget_floor(state: ConversationState, budget: Budget, pending: int) -> bool:
    """Return whether nothing is due by tokens alone. Spares most turns the full check."""
    view = state.view
    tokens = view.profile.calibrate(view.tokens_uncalibrated + pending)
    return tokens < budget.floor and state.cap is None
