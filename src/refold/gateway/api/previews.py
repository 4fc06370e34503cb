"""The operations `preview` and `preview_parts`: what a compaction, or parts of it, would do."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from msgspec import UNSET

from refold.compactor import late_edits
from refold.compactor.by_hand import Preview
from refold.compactor.pins import Pins, keep_pinned
from refold.compactor.run import add_instructions
from refold.core.strategy import Ending, Steps, Strategy, Wrapped, change_edits, is_local
from refold.core.view import View
from refold.edits import Attempt, Edit
from refold.gateway.api.api_types import PartsArguments, PreviewArguments, PreviewPartsArguments
from refold.gateway.api.context import ApiContext, PendingPreview, Problem
from refold.gateway.api.files import OpenedFile
from refold.gateway.api.lookup import (
    LocatedSession,
    describe_edit,
    locate,
)
from refold.gateway.api.page_types import (
    Effect,
    Losses,
    LossesByKind,
    LostLine,
    PreviewAnswer,
    PreviewAttempt,
)
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.exchange import Incoming
from refold.gateway.ledger import sessions
from refold.gateway.pipeline.limits import strategies_for
from refold.messages import Message
from refold.models.driver import Asker
from refold.models.fallback import Fallback
from refold.models.model import Model
from refold.models.providers import HTTPModel
from refold.session_files.edited import EditedSession, read_only_compactor, try_strategies
from refold.strategies.summarize import Summarize, SummarizeTo
from refold.strategies.whole_history import HistorySummary
from refold.summarizers.placement import MessageFilter
from refold.summarizers.tail import count_shown, find_unsummarized
from refold.tokens.model_table import Rates, find_rates

# --- operations -----------------------------------------------------------------------------------


def preview(context: ApiContext, arguments: PreviewArguments) -> PreviewAnswer:
    """Return what a compaction would do. Only the ledger's rows are stored; the preview is kept for
    `accept`. Raises `Problem`, `FormatError`, `StoreError`, `ConversationBusy`."""
    if file := context.find_named_file(arguments):
        return _preview_file(context, arguments, file)
    located = locate(context, arguments)
    result = _run(context, arguments, located)
    is_readable = located.is_sent_along or context.transcripts.is_recorded(
        located.conversation.tenant, located.conversation.name
    )
    answer = _offer(context, located.offer(result, is_readable=is_readable))
    if located.is_sent_along:
        answer.request = json.loads(result.view.encode(located.turn.payload))
    return answer


def _run(context: ApiContext, arguments: PreviewArguments, located: LocatedSession) -> Preview:
    compactor, turn, view = located.conversation.compactor, located.turn, located.view
    target = turn.levels.for_view(view).target
    if arguments.to is not UNSET:
        estimate = int(arguments.to / located.ratio)
        goal = view.profile.calibrate(max(0, estimate - located.unseen_tokens))
    else:
        goal = _usual_goal(arguments, view, target)
    pins = Pins(context.pipeline.store, located.conversation.name)
    strategies = choose_strategies(context, arguments, view, goal or target, pins)
    twin = compactor.with_settings(strategies=strategies)
    twin.ask = choose_asker(context, arguments)
    return twin.preview(turn.payload, to=goal, actor=arguments.actor)


def _preview_file(
    context: ApiContext, arguments: PreviewArguments, file: OpenedFile
) -> PreviewAnswer:
    """Return what a compaction of a session in a client's file would do, as `refold compact` does
    it, edits of local strategies included."""
    edited, view = file.edited, file.edited.view
    model = view.profile.model
    incoming = Incoming(edited.format, "", "/", (), b"")
    target = (
        context.pipeline.resources.model_limits.for_model(incoming, model).for_view(view).target
    )
    to = _usual_goal(arguments, view, target) if arguments.to is UNSET else arguments.to
    strategies = choose_strategies(context, arguments, view, to or target, None)
    ask = choose_asker(context, arguments)
    result, _ = try_strategies(
        edited, strategies, to, ask=ask, actor=arguments.actor, action="preview"
    )
    return _offer(context, make_pending(file.row.id, edited, result))


def _usual_goal(arguments: PreviewArguments, view: View, target: int) -> int:
    """Return the goal in tokens if none is given. For a range it is 0: all that can be done."""
    is_whole = read_range(arguments, view) == (0, len(view.transcript))
    return min(target, view.tokens * 19 // 20) if is_whole else 0


def _offer(context: ApiContext, pending: PendingPreview) -> PreviewAnswer:
    """Return the answer of a preview, and keep it for `accept` if it has edits."""
    name = context.add_preview(pending) if pending.preview.edits else None
    return describe_preview(context, pending, name)


def make_pending(id: str, edited: EditedSession, preview: Preview) -> PendingPreview:
    """Return a pending preview of the session *id* in a client's file."""
    conversation = Conversation(id, "", "", read_only_compactor(edited))
    return PendingPreview(
        conversation,
        preview,
        is_readable=True,
        model=edited.view.profile.model,
        file=edited,
    )


def preview_parts(context: ApiContext, arguments: PreviewPartsArguments) -> PreviewAnswer:
    """Return what some edits of a preview would do, with new texts of summaries. The preview is not
    changed. Raises `Problem`, `EditError`."""
    pending = context.find_preview(arguments.preview, arguments.session)
    chosen = choose_parts(pending.preview, arguments)
    return describe_preview(context, pending._replace(preview=chosen), arguments.preview)


def choose_parts(preview: Preview, arguments: PartsArguments) -> Preview:
    """Return *preview* with only the chosen edits, and new texts of summaries. Edits that drop
    thinking stay, and those that the rest needs besides are added. Raises `Problem` 404,
    `EditError`."""
    names = {edit.id for edit in preview.edits}
    edits = names if arguments.edits is UNSET else arguments.edits
    if unknown := [id for id in edits if id not in names]:
        raise Problem(404, "no_edit", f"{unknown[0]} is no edit of this preview")
    for id, text in (arguments.amend or {}).items():
        if arguments.edits is UNSET or id in edits:
            preview = preview.amend(id, text)
    wanted = {*edits, *(e.id for e in preview.edits if e.by == late_edits.STRIP_THINKING_BY)}
    left_out = [edit.id for edit in preview.edits if edit.id not in wanted]
    if not left_out:
        return preview
    chosen = tuple(edit for edit in preview.edits if edit.id in wanted)
    late = late_edits.edits_dropping_thinking(preview.before, chosen)
    view = preview.view.revert(*left_out).apply_valid(late)
    view = replace(view, attempts=preview.attempts)
    return replace(preview, view=view, edits=(*chosen, *late))


def describe_preview(
    context: ApiContext, pending: PendingPreview, name: str | None
) -> PreviewAnswer:
    """Return the answer of a preview with this *name*."""
    preview, is_readable = pending.preview, pending.is_readable
    ids = {edit.id for edit in preview.edits}
    history = preview.view.transcript.messages if is_readable else None
    shown = [
        sessions.describe_edit(preview.view, placed).calibrate(pending.ratio)
        for placed in preview.view.visible_edits
        if placed.edit.id in ids
    ]
    before, after = pending.count(preview.before), pending.count(preview.view)
    unseen = round(pending.ratio * pending.unseen_tokens)
    share = (after - unseen) / max(1, preview.view.tokens)  # the session's ratio may differ
    attempts = (each.calibrate(lambda n: unseen + round(n * share)) for each in preview.attempts)
    rates = find_rates(pending.model, context.pipeline.settings.prices)
    return PreviewAnswer(
        preview=name,
        session=pending.conversation.name,
        tokens_before=before,
        tokens_after=after,
        saved_tokens=before - after,
        calls=preview.calls,
        cost=preview.cost,
        edits=[describe_edit(edit, history) for edit in shown],
        summaries=dict(preview.summaries()),
        attempts=[_describe_attempt(attempt) for attempt in attempts],
        losses=_count_losses(preview, is_readable=is_readable),
        lost=[LostLine(*loss) for loss in preview.losses.items] if is_readable else [],
        effect=_effect(pending, before, after, rates),
        request=None,
    )


def _describe_attempt(attempt: Attempt) -> PreviewAttempt:
    names = (name for name in PreviewAttempt.__struct_fields__ if name != "edits")
    figures = {name: getattr(attempt, name) for name in names}
    return PreviewAttempt(edits=attempt.edits_applied, **figures)


def _count_losses(preview: Preview, *, is_readable: bool) -> LossesByKind:
    """Return the number of losses by kind, with their names if they are *is_readable*."""
    names = {kind: getattr(preview.losses, kind) for kind in LossesByKind.__struct_fields__}
    return LossesByKind(
        **{
            kind: Losses(len(lost), list(lost) if is_readable else [])
            for kind, lost in names.items()
        }
    )


def _effect(pending: PendingPreview, before: int, after: int, rates: Rates | None) -> Effect:
    """Return what the change does to the provider's cache while it is alive, and to the cost."""
    preview = pending.preview
    view, old = preview.view, {edit.id for edit in preview.before.edits}
    first = min(
        (placed.edit.start for placed in view.visible_edits if placed.edit.id not in old),
        default=len(view.transcript),
    )
    behind = sum(item.tokens for item in view.iter_items() if item.start >= first)
    written = min(after, round(pending.ratio * behind))
    if rates is None:
        return Effect(after - written, written, None, None, None)
    low = rates.for_request(after)
    once = written * (low.write - low.read) / 1e6 + preview.cost
    per_call = (before * rates.for_request(before).read - after * low.read) / 1e6
    calls = once / per_call if per_call > 0 else None
    return Effect(after - written, written, once, per_call, calls)


# --- strategies of a preview ----------------------------------------------------------------------

KINDS: Mapping[str, str] = {
    "ClearThinking": "thinking",
    "ClearToolResults": "results",
    "ClearToolInputs": "results",
}
"""Kinds of strategies, as `preview` names them; all others summarise."""


def read_range(arguments: PreviewArguments, view: View) -> tuple[int, int]:
    """Return the chosen range of messages, as (start, stop)."""
    length = len(view.transcript)
    start = 0 if arguments.start is UNSET else min(arguments.start, length)
    return start, length if arguments.stop is UNSET else min(arguments.stop, length)


def choose_strategies(
    context: ApiContext, arguments: PreviewArguments, view: View, target: int, pins: Pins | None
) -> tuple[Strategy, ...]:
    """Return the chosen strategies, which keep *pins* and edit only the chosen messages. For a
    file, which has no *pins*, local strategies are subject to the choice too."""
    settings, (start, stop) = context.pipeline.settings, read_range(arguments, view)
    is_whole = (start, stop) == (0, len(view.transcript))
    if arguments.summary == "rules":
        settings = replace(settings, ask=None)
    kinds = None if arguments.strategies is UNSET else arguments.strategies
    by_name = dict[str, Strategy]()  # one summary per range
    for strategy in strategies_for(settings, target):
        if is_local(strategy):
            if pins is not None or (is_whole and (kinds is None or "results" in kinds)):
                by_name[repr(strategy)] = strategy
        elif kinds is None or KINDS.get(type(strategy).__name__, "summary") in kinds:
            ranged = _for_range(strategy, start, stop, len(view.transcript))
            (keeping,) = keep_pinned((ranged,), pins)
            run = partial(_run_within, start, stop, arguments.instructions)
            by_name.setdefault(repr(ranged), Wrapped(keeping, run))
    return tuple(by_name.values())


def list_writers(context: ApiContext) -> Sequence[Model]:
    """Return the models that the gateway asks for summaries; none if a function asks them."""
    ask = context.pipeline.settings.ask
    return ask.models if isinstance(ask, Fallback) else ()


def find_endpoint(context: ApiContext) -> HTTPModel | None:
    """Return the first of them that is asked over HTTP, whose server may be asked for other models
    too; None without one."""
    return next((model for model in list_writers(context) if isinstance(model, HTTPModel)), None)


def choose_asker(context: ApiContext, arguments: PreviewArguments) -> Asker | None:
    """Return the function that answers strategies: the gateway's own, or one for the named model on
    the same server, with the same key and its own price; None if no model is configured. Raises
    `Problem` 422."""
    workers, settings = context.pipeline.workers, context.pipeline.settings
    name = arguments.summary_model.strip()
    if not name or arguments.summary == "rules":
        ask = settings.ask
        manual = ask.manual.acall if isinstance(ask, Fallback) else ask
        return partial(workers.ask, other=manual) if manual else None
    endpoint = find_endpoint(context)
    if endpoint is None:
        raise Problem(
            422, "no_endpoint", "`summary_model` needs a server of models; the gateway has none."
        )
    rates = find_rates(name, settings.prices)
    price = (rates.input, rates.output, rates.read, rates.write) if rates else None
    model = replace(endpoint, model=name, price=price, same_model=False, window=None)
    return partial(workers.ask, other=Fallback(model).acall)


def _for_range(strategy: Strategy, start: int, stop: int, length: int) -> Strategy:
    """Return the strategy for `messages[start:stop]`: instead of a summary of the beginning, one of
    these. Other strategies do not change."""
    if (start, stop) == (0, length) or not isinstance(strategy, Summarize | SummarizeTo):
        return strategy
    most = strategy.max_tokens if isinstance(strategy, Summarize) else strategy.most
    return SummarizeRange(
        HistorySummary(max_tokens=most, summarizer=strategy.summarizer), start, stop
    )


LEAST_ROOM = 200
"""Minimum of the tokens that the summary of a short range may have."""


@dataclass(frozen=True)
class SummarizeRange:
    """Strategy that folds the messages between two legal cuts within `messages[start:stop]` into
    one summary, of at most a quarter of their tokens, since no target sets its size."""

    history: HistorySummary
    start: int
    stop: int
    pin: Callable[[Message], bool] | None = None
    """Predicate for messages that stay, before the summary."""

    def __repr__(self) -> str:
        return f"Summarize(start={self.start}, stop={self.stop})"

    def __call__(self, view: View) -> Steps:
        """Propose one edit, or none."""
        cuts = sorted(cut for cut in view.cuts if self.start <= cut <= self.stop)
        if len(cuts) < 2:
            return None
        if not any(stop > cuts[0] for _, stop in find_unsummarized(view, cuts[-1])):
            return Ending("noop", "nothing new to summarise")  # as in every further round
        pin, room = self.pin, max(LEAST_ROOM, count_shown(view, cuts[0], cuts[-1]) // 4)
        history = replace(self.history, max_tokens=min(self.history.max_tokens, room))
        if pin is not None:
            history = replace(history, memory=IsPinnedOrMemory(pin, history.memory))
        return (yield from history.replace_span(view, cuts[0], cuts[-1], cuts[0]))


@dataclass(frozen=True)
class IsPinnedOrMemory:
    """Predicate for messages that stay beside a summary."""

    pin: Callable[[Message], bool]
    memory: MessageFilter

    def __repr__(self) -> str:
        return repr(self.memory)  # an edit's `by` does not name pins

    def __call__(self, message: Message) -> bool:
        """Return whether *message* is pinned, or memory."""
        return self.pin(message) or self.memory(message)


def _run_within(start: int, stop: int, instructions: str, strategy: Strategy, view: View) -> Steps:
    """Run *strategy* without its edits that reach beyond `messages[start:stop]`. *instructions* are
    added to the prompts of its model."""

    def select(edit: Edit) -> Edit | None:
        return edit if start <= edit.start and edit.stop <= stop else None

    run = change_edits(strategy(view), select)
    return add_instructions(run, instructions) if instructions else run
