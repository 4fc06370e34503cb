"""What a compaction would do, and what some of its parts would: `preview` and `preview_parts`."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import UNSET

from refold.budget.planner import Offer, break_even
from refold.budget.prices import Rates, find_rates
from refold.compactor import late_edits
from refold.compactor.by_hand import Preview
from refold.compactor.run import add_instructions
from refold.core.strategy import End, Steps, Strategy, advance, is_local, with_goal
from refold.core.view import View
from refold.edits import Attempt, Edit
from refold.gateway.api.arguments import PreviewArguments, PreviewPartsArguments
from refold.gateway.api.context import ApiContext, PendingPreview, Problem
from refold.gateway.api.lookup import LocatedSession, describe_edit, locate, text_hidden_by
from refold.gateway.api.page_types import (
    Effect,
    Losses,
    LossesByKind,
    LostLine,
    PreviewAnswer,
    PreviewAttempt,
)
from refold.gateway.conversations.pins import Pins, heed_pins
from refold.gateway.ledger import sessions
from refold.gateway.pipeline.limits import strategies_for
from refold.messages import Message
from refold.strategies.summarize import Summarize, SummarizeTo
from refold.strategies.whole_history import HistorySummary
from refold.summarizers.memory_messages import MessageFilter

KINDS: Mapping[str, str] = {
    "ClearThinking": "thinking",
    "ClearToolResults": "results",
    "ClearToolInputs": "results",
}
"""What strategies do, as `preview` is asked for it; all others summarise."""


def preview(context: ApiContext, asked: PreviewArguments) -> PreviewAnswer:
    """Return what a compaction would do. Only the ledger's rows are kept, and the preview for
    `accept`. Raises `Problem`, `FormatError`, `StoreError`, `ConversationBusy`."""
    located = locate(context, asked)
    result = _run(context, asked, located)
    is_readable = located.is_sent_along or context.is_recorded(
        located.conversation.tenant, located.conversation.name
    )
    pending = PendingPreview(
        located.conversation, result, located.unseen_tokens, is_readable, located.turn.model
    )
    name = context.add_preview(pending) if result.edits else None
    answer = describe_preview(context, pending, name)
    if located.is_sent_along:
        answer.request = json.loads(result.view.encode(located.turn.payload))
    return answer


def preview_parts(context: ApiContext, asked: PreviewPartsArguments) -> PreviewAnswer:
    """Return what some parts of a preview would do, with other words. The preview stays as it is.
    Raises `Problem`, `EditError`."""
    pending = context.find_preview(asked.preview, asked.session)
    edits = None if asked.edits is UNSET else asked.edits
    chosen = choose_parts(pending.preview, edits, asked.amend or {})
    return describe_preview(context, pending._replace(preview=chosen), asked.preview)


def choose_parts(
    preview: Preview, edits: Sequence[str] | None, amend: Mapping[str, str]
) -> Preview:
    """Return *preview* with only these of its *edits* (None: all), and other texts in summaries.
    Edits that drop thinking belong to all. Raises `Problem` 404, `EditError`."""
    names = {edit.id for edit in preview.edits}
    if edits is not None and (unknown := [id for id in edits if id not in names]):
        raise Problem(404, "no_edit", f"{unknown[0]} is no part of this preview")
    for id, text in amend.items():
        if edits is None or id in edits:
            preview = preview.amend(id, text)
    if edits is None:
        return preview
    wanted = {*edits, *(e.id for e in preview.edits if e.by == late_edits.BY)}
    left_out = [edit.id for edit in preview.edits if edit.id not in wanted]
    if not left_out:
        return preview
    view = preview.view.revert(*left_out)
    return replace(
        preview,
        view=replace(view, attempts=preview.attempts),
        edits=tuple(edit for edit in preview.edits if edit.id in wanted),
    )


def describe_preview(
    context: ApiContext, pending: PendingPreview, name: str | None
) -> PreviewAnswer:
    """Return the answer of a preview that has this *name*."""
    preview, is_readable = pending.preview, pending.is_readable
    ids, messages = {edit.id for edit in preview.edits}, preview.view.transcript.messages
    shown = [
        sessions.describe_edit(preview.view, placed)
        for placed in preview.view.visible_edits
        if placed.edit.id in ids
    ]
    before, after = (
        view.tokens_uncalibrated + pending.unseen_tokens for view in (preview.before, preview.view)
    )
    rates = find_rates(pending.model, context.pipeline.settings.prices)
    return PreviewAnswer(
        preview=name,
        session=pending.conversation.name,
        tokens_before=before,
        tokens_after=after,
        saved_tokens=before - after,
        calls=preview.calls,
        cost=preview.cost,
        edits=[
            describe_edit(
                edit, text_hidden_by(messages, edit.start, edit.stop) if is_readable else None
            )
            for edit in shown
        ],
        summaries=dict(preview.summaries()),
        attempts=[_describe_attempt(attempt) for attempt in preview.attempts],
        losses=_count_losses(preview, is_readable=is_readable),
        lost=[LostLine(*loss) for loss in preview.losses.items] if is_readable else [],
        effect=_effect(preview, before, after, rates),
        request=None,
    )


def _describe_attempt(attempt: Attempt) -> PreviewAttempt:
    names = (name for name in PreviewAttempt.__struct_fields__ if name != "edits")
    figures = {name: getattr(attempt, name) for name in names}
    return PreviewAttempt(edits=attempt.edits_applied, **figures)


def _count_losses(preview: Preview, *, is_readable: bool) -> LossesByKind:
    """Return how much would be lost, and all its names if they are *is_readable*."""
    names = {kind: getattr(preview.losses, kind) for kind in LossesByKind.__struct_fields__}
    return LossesByKind(
        **{
            kind: Losses(len(lost), list(lost) if is_readable else [])
            for kind, lost in names.items()
        }
    )


def _effect(preview: Preview, before: int, after: int, rates: Rates | None) -> Effect:
    """Return what the provider's cache makes of the change, while it is alive."""
    view, old = preview.view, {edit.id for edit in preview.before.edits}
    first = min(
        (placed.edit.start for placed in view.visible_edits if placed.edit.id not in old),
        default=len(view.transcript),
    )
    behind = sum(item.tokens for item in view.iter_items() if item.start >= first)
    written, removed = min(after, behind), before - after
    if rates is None:
        return Effect(after - written, written, None, None, None)
    once = written * (rates.write - rates.read) / 1e6 + preview.cost
    per_call = removed * rates.read / 1e6
    calls = break_even(Offer(removed=removed, rewritten=written, tokens=before), rates)
    calls += preview.cost / per_call if per_call > 0 else 0.0
    return Effect(
        after - written, written, once, per_call, calls if 0 <= calls < float("inf") else None
    )


# --- which strategies -------------------------------------------------------------------------


def _run(context: ApiContext, asked: PreviewArguments, located: LocatedSession) -> Preview:
    compactor, turn, view = located.conversation.compactor, located.turn, located.view
    length = len(view.transcript)
    start = 0 if asked.start is UNSET else min(asked.start, length)
    stop = length if asked.stop is UNSET else min(asked.stop, length)
    goal = None
    if asked.to is not UNSET:
        goal = view.profile.calibrate(max(0, asked.to - located.unseen_tokens))
    elif (start, stop) != (0, length):
        goal = 0  # all that can be done to the messages that were chosen
    settings = context.pipeline.settings
    if asked.summary == "rules":
        settings = replace(settings, ask=None)
    strategies = strategies_for(settings, located.conversation.target_tokens or turn.levels.target)
    kinds = None if asked.strategies is UNSET else asked.strategies
    by_name = dict[str, Strategy]()  # of one range there is one summary
    pins = Pins(context.pipeline.store, located.conversation.name)
    for strategy in strategies:
        if is_local(strategy):
            by_name[repr(strategy)] = strategy
        elif kinds is None or KINDS.get(type(strategy).__name__, "summary") in kinds:
            ranged = _for_range(strategy, start, stop, length)
            (heeding,) = heed_pins((ranged,), pins)
            by_name.setdefault(repr(ranged), Within(heeding, start, stop, asked.heed))
    return compactor.with_settings(strategies=tuple(by_name.values())).preview(
        turn.payload, to=goal, actor=asked.actor
    )


def _for_range(strategy: Strategy, start: int, stop: int, length: int) -> Strategy:
    """Return the strategy for `messages[start:stop]`: a summary of these instead of one of the
    whole beginning."""
    if (start, stop) == (0, length) or not isinstance(strategy, Summarize | SummarizeTo):
        return strategy
    most = strategy.max_tokens if isinstance(strategy, Summarize) else strategy.most
    return SummarizeRange(
        HistorySummary(max_tokens=most, summarizer=strategy.summarizer), start, stop
    )


@dataclass(frozen=True)
class SummarizeRange:
    """Fold the messages between two legal cuts within `messages[start:stop]` into one summary."""

    history: HistorySummary
    start: int
    stop: int
    pin: Callable[[Message], bool] | None = None
    """Which messages stay, before the summary."""

    def __repr__(self) -> str:
        return f"Summarize(start={self.start}, stop={self.stop})"

    def __call__(self, view: View) -> Steps:
        """Propose one edit, or none."""
        cuts = sorted(cut for cut in view.cuts if self.start <= cut <= self.stop)
        if len(cuts) < 2:
            return None
        history, pin = self.history, self.pin
        if pin is not None:
            history = replace(history, memory=IsPinnedOrMemory(pin, history.memory))
        return (yield from history.replace_span(view, cuts[0], cuts[-1], cuts[0]))


@dataclass(frozen=True)
class IsPinnedOrMemory:
    """Does a message stay beside a summary?"""

    pin: Callable[[Message], bool]
    memory: MessageFilter

    def __repr__(self) -> str:
        return repr(self.memory)  # what is pinned is no part of what an edit is by

    def __call__(self, message: Message) -> bool:
        """Is *message* pinned, or memory?"""
        return self.pin(message) or self.memory(message)


@dataclass(frozen=True)
class Within:
    """Run *strategy* and leave out its edits that reach beyond `messages[start:stop]`; *heed* is
    told to the model that it asks."""

    strategy: Any
    start: int
    stop: int
    heed: str = ""

    def __repr__(self) -> str:
        return repr(self.strategy)

    def aim_at(self, goal: int) -> "Within":
        """Return the same with a strategy that comes down to *goal* tokens, if it can."""
        return replace(self, strategy=with_goal(self.strategy, goal))

    def __call__(self, view: View) -> Steps:
        """Propose what the strategy does."""
        run = self._select(self.strategy(view))
        if self.heed:
            run = add_instructions(run, self.heed)
        return (yield from run)

    def _select(self, run: Steps) -> Steps:
        step = advance(run)
        while not isinstance(step, End):
            is_beyond = isinstance(step, Edit) and not (
                self.start <= step.start and step.stop <= self.stop
            )
            step = advance(run) if is_beyond else advance(run, (yield step))
        return step.value
