"""Compaction in a turn: when it is due, when it pays, and summaries made ahead.

The caller holds the turn's conversation (`Turn.hold`). All functions raise `StoreError`.
"""

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from refold.budget.budget import Budget, count_calls, plan_view
from refold.budget.planner import (
    DEFAULT_GOAL,
    SMALLEST_REMOVAL,
    CallCounts,
    Plan,
    Verdict,
    estimate_remaining_calls,
    is_hour_cheaper,
    judge_edit,
)
from refold.compactor.by_hand import Preview
from refold.compactor.late_edits import would_hide_unanswered
from refold.core.tool_groups import find_refetched
from refold.core.view import View
from refold.edits import Edit
from refold.errors import EditError
from refold.gateway.conversations.persistence import RowLedger
from refold.gateway.conversations.stores import ClaimResult
from refold.gateway.ledger.accounting import has_hour_cache
from refold.gateway.logs import log
from refold.gateway.pipeline.limits import level_budget, rule_strategies
from refold.gateway.pipeline.turns import Resources, Turn
from refold.gateway.settings import Settings
from refold.tokens.model_table import Rates, find_rates


def compact_if_due(turn: Turn, view: View, *, opportunistic: bool = True) -> tuple[View, str]:
    """Compact if that is due or, with *opportunistic*, if it pays; return the view to send, and the
    reason: `shown` if nothing was compacted."""
    levels, reason, settings = turn.levels.for_view(view), "shown", turn.resources.settings
    budget = level_budget(levels)
    level = budget.check(view)
    if level == "hard" and _accept_prefetched(turn):
        view, reason = turn.show(), "prepared"
        level = budget.check(view)
    if level == "hard":
        view, reason = _compact_exclusively(turn, view)
    elif opportunistic and settings.economy and turn.incoming.api not in settings.native:
        view, reason = _compact_if_worthwhile(turn, view, reason)
    if level == "soft" and opportunistic:
        _request_prefetch(turn, view, levels.target)
    return view, reason


def hold_claim(turn: Turn, view: View, *, wait: bool) -> AbstractContextManager[ClaimResult]:
    """Hold the claim to compact a conversation, among the processes that share its summaries. In
    memory nothing is claimed."""
    if turn.in_memory:
        return nullcontext(ClaimResult(is_mine=True, has_waited=False))
    return turn.resources.summaries.hold(turn.conversation.family, view, wait=wait)


def compact_in_memory(turn: Turn, view: View) -> View:
    """Return the view, compacted if it reaches the hard level."""
    budget = level_budget(turn.levels.for_view(view))
    return _compact(turn, budget) if budget.check(view) == "hard" else view


def _compact(turn: Turn, budget: Budget) -> View:
    view = turn.compactor.compact(turn.payload, budget=budget)
    turn.conversation.baseline_tokens = view.tokens
    return view


def _compact_exclusively(turn: Turn, view: View) -> tuple[View, str]:
    """Compact, unless another process has done so or a prepared summary is enough."""
    budget, prefetch = level_budget(turn.levels.for_view(view)), turn.conversation.prefetch
    with hold_claim(turn, view, wait=True) as claim:
        if claim.has_waited:
            view = turn.show()
        if prefetch.preview is None and budget.check(view) == "hard":
            prefetch.preview = turn.resources.summaries.find(view)
        is_prepared = _accept_prefetched(turn)
        if is_prepared:
            view = turn.show()
        if budget.check(view) != "hard":
            return view, "prepared" if is_prepared else "shown"
        _report_refetched(turn, view)
        return _compact(turn, budget), "hard"


def _compact_if_worthwhile(turn: Turn, view: View, reason: str) -> tuple[View, str]:
    """Compact by rules, without a model, if that pays; return the view and the reason."""
    conversation = turn.conversation
    if conversation.baseline_tokens is None and view.visible_edits:
        conversation.baseline_tokens = view.tokens
    case = plan_compaction(turn, view)
    if case is None:
        return view, reason
    conversation.baseline_tokens = view.tokens
    preview = _preview_by_rules(turn, case.plan.goal)
    verdict = case.judge(view, preview.edits, preview.view)
    if not preview.edits or not verdict.pays:
        return view, reason
    conversation.prefetch.preview = None  # it was made from the view before this compaction
    _report_refetched(turn, view)
    if _accept(turn, preview, verdict.reason):
        view, reason = turn.show(), "pays"
        conversation.baseline_tokens = view.tokens
    return view, reason


def _report_refetched(turn: Turn, view: View) -> None:
    """Count and log results that were fetched again, which this compaction keeps."""
    if positions := find_refetched(view):
        api, messages = turn.incoming.api, view.transcript.messages
        turn.resources.counters.add("refetched_kept", len(positions), api=api)
        sizes = (view.profile.count(messages[at]) for at in positions)
        figures = {"results": len(positions), "tokens": sum(sizes)}
        log(
            "results that were fetched again are kept",
            logging.INFO,
            api=api,
            model=turn.model,
            **figures,
        )


def _preview_by_rules(turn: Turn, goal: int) -> Preview:
    by_rules = turn.conversation.compactor.with_settings(
        strategies=turn.keep_pinned(rule_strategies(turn.resources.settings, goal)),
        ledger=RowLedger([]),  # a preview is not entered in the ledger
        on_event=None,
    )
    return by_rules.preview(turn.payload, to=goal)


def _accept_prefetched(turn: Turn) -> bool:
    """Save the edits of the compaction made ahead; return whether they were usable."""
    prefetch = turn.conversation.prefetch
    preview, prefetch.preview = prefetch.preview, None
    return preview is not None and _accept(turn, preview, "prepared")


def _accept(turn: Turn, preview: Preview, why: str) -> bool:
    """Save the edits of *preview* if they match this history and hide nothing unanswered; return
    whether they do."""
    resources, transcript = turn.resources, turn.compactor.show(turn.payload).transcript
    is_usable = all(
        transcript.matches(edit) and not would_hide_unanswered(edit, transcript.messages)
        for edit in preview.edits
    )
    if is_usable:
        try:
            turn.compactor.accept(preview, actor=f"auto ({why})")
        except EditError:
            is_usable = False
    resources.summaries.remove(preview.edits)
    resources.counters.add("prepared", result="used" if is_usable else "stale")
    return is_usable


def _request_prefetch(turn: Turn, view: View, goal: int) -> None:
    """Compact in the background after the request is sent, with a model and no run in progress."""
    prefetch = turn.conversation.prefetch
    if turn.resources.settings.ask is None or prefetch.is_running or prefetch.preview is not None:
        return
    prefetch.job = partial(_prefetch, turn, view, goal)


def _prefetch(turn: Turn, view: View, goal: int) -> Preview | None:
    """Return a compaction made ahead, by this or another process; None while another makes one, or
    if there is nothing to compact."""
    summaries = turn.resources.summaries
    with hold_claim(turn, view, wait=False) as claim:
        if not claim.is_mine:
            return None
        if preview := summaries.find(view):
            return preview
        preview = turn.compactor.preview(turn.payload, to=goal, actor="auto (ahead)")
        if not preview.edits:
            return None
        summaries.save(preview.edits)
        return preview


# --- whether a compaction pays --------------------------------------------------------------------


class PlannedCompaction(NamedTuple):
    """A planned compaction that should pay, and the prices that it is judged by."""

    plan: Plan
    rates: Rates

    def judge(self, view: View, edits: Sequence[Edit], after: View) -> Verdict:
        """Return the worth of turning *view* into *after* by *edits*."""
        first = min((edit.start for edit in edits), default=len(view.transcript))
        changed = sum(item.tokens for item in after.iter_items() if item.start >= first)
        calibrate, block = view.profile.calibrate, self.rates.block_tokens
        tokens = calibrate(view.profile.fixed_tokens + after.estimate)
        least = self.rates.in_blocks(tokens)
        removed = self.rates.in_blocks(view.tokens) - least
        rewritten = least - (tokens - calibrate(changed)) // block * block
        offer = replace(self.plan.offer, removed=removed, rewritten=rewritten)
        return judge_edit(offer, self.rates, self.plan.worth.expected)


def find_request_rates(settings: Settings, model: str, source: bytes) -> Rates | None:
    """Return the token prices for this request, with those of an hour's cache if *source*, which is
    searched to its end, asks for one; None if unknown."""
    rates = find_rates(model, settings.prices)
    return rates.for_an_hour() if rates is not None and has_hour_cache(source) else rates


def plan_compaction(turn: Turn, view: View) -> PlannedCompaction | None:
    """Return the compaction that should cut costs; None if it is too early, the conversation is too
    short, or prices are unknown."""
    conversation, resources = turn.conversation, turn.resources
    tokens = view.tokens - view.profile.calibrate(view.profile.fixed_tokens)
    if tokens < (1 + SMALLEST_REMOVAL) * DEFAULT_GOAL:
        return None
    settings, source = resources.settings, turn.incoming
    engine = settings.find_engine(source.upstream, turn.model)
    rates = engine and engine.profile.rates
    rates = rates or find_request_rates(settings, turn.model, source.body)
    if rates is None:
        return None
    rates = rates.for_an_hour() if conversation.cache.keeps_hour else rates
    floor = conversation.baseline_tokens or 0
    is_cold = _has_lapsed(turn, view, rates) or turn.is_cache_broken(view)
    plan = plan_view(view, rates, _call_counts(resources), floor=floor, is_cold=is_cold)
    return PlannedCompaction(plan, rates) if plan is not None else None


def _has_lapsed(turn: Turn, view: View, rates: Rates) -> bool:
    answered_at = _latest_answer_time(turn, view)
    return (
        answered_at is not None and turn.resources.settings.clock() - answered_at > rates.lifetime
    )


def _latest_answer_time(turn: Turn, view: View) -> float | None:
    """Return when the upstream last answered, in seconds since 1970; None if that is not known
    here: the history has several new answers, so other processes have sent requests since."""
    conversation = turn.conversation
    start = len(conversation.latest.view.transcript) if conversation.latest is not None else 0
    roles = [message.role for message in view.transcript.messages[start:]]
    answers = sum("assistant" == role != before for before, role in pairwise(["", *roles]))
    return conversation.cache.answered_at if answers < 2 else None


def _call_counts(resources: Resources) -> CallCounts | None:
    return resources.ledger_writer.survival if resources.ledger_writer is not None else None


def decide_hour_cache(turn: Turn, view: View) -> bool:
    """Return whether the provider is to cache this conversation for an hour.

    Decided again when the cache holds nothing of it, because all of it is then written anyway.
    """
    conversation, resources = turn.conversation, turn.resources
    settings = resources.settings
    if not settings.hour_cache or turn.incoming.api != "anthropic":
        return False
    cache, latest = conversation.cache, conversation.latest
    answered_at = _latest_answer_time(turn, view)
    if answered_at is not None and latest is not None and latest.sent_at <= answered_at:
        cache.pauses.append(settings.clock() - answered_at)  # not again for retries
    rates = find_rates(turn.model, settings.prices)
    if rates is None:
        return cache.keeps_hour
    now = rates.for_an_hour() if cache.keeps_hour else rates
    if cache.answered_at is None or _has_lapsed(turn, view, now) or turn.is_cache_broken(view):
        calls = estimate_remaining_calls(count_calls(view), _call_counts(resources), view.tokens)
        cache.keeps_hour = is_hour_cheaper(view.tokens, cache.pauses, rates, calls)
    return cache.keeps_hour
