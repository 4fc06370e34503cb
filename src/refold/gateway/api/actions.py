"""The operations that change a conversation: `preview`, `accept` and `revert`."""

import json
from collections.abc import Sequence
from contextlib import suppress

from msgspec import UNSET

from refold.compactor.late_edits import edits_dropping_thinking, find_thinking_copies
from refold.core.view import View
from refold.edits import Edit
from refold.errors import StoreError
from refold.gateway.api.answers import AcceptAnswer, PreviewAnswer, RevertAnswer
from refold.gateway.api.arguments import AcceptArguments, PreviewArguments, RevertArguments
from refold.gateway.api.context import ApiContext, PendingPreview
from refold.gateway.api.lookup import find_edit, locate
from refold.gateway.api.serialize import (
    describe_edit,
    losses_by_kind,
    preview_attempt,
    request_tokens,
    text_hidden_by,
)
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.conversations.persistence import find_result_edits, save_edits
from refold.gateway.ledger import sessions


def preview(context: ApiContext, asked: PreviewArguments) -> PreviewAnswer:
    """Return what a compaction would do. Only the ledger's rows are kept, and the preview for
    `accept`. Raises `Problem`, `FormatError`, `StoreError`, `ConversationBusy`."""
    located = locate(context, asked)
    conversation, turn, unseen_tokens = located.conversation, located.turn, located.unseen_tokens
    view = located.view
    goal = None if asked.to is UNSET else view.profile.calibrate(max(0, asked.to - unseen_tokens))
    preview = conversation.compactor.preview(turn.payload, to=goal, actor=asked.actor)
    is_readable = located.is_sent_along or context.is_recorded(
        conversation.tenant, conversation.name
    )
    ids, messages = {edit.id for edit in preview.edits}, view.transcript.messages
    shown = [
        sessions.describe_edit(preview.view, placed)
        for placed in preview.view.visible_edits
        if placed.edit.id in ids
    ]
    before, after = (request_tokens(view, unseen_tokens) for view in (preview.before, preview.view))
    pending = PendingPreview(conversation, preview, unseen_tokens, is_readable)
    return PreviewAnswer(
        preview=context.add_preview(pending) if preview.edits else None,
        session=conversation.name,
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
        attempts=[preview_attempt(attempt) for attempt in preview.attempts],
        losses=losses_by_kind(preview.losses, is_readable=is_readable),
        request=json.loads(turn.encode(preview.view)) if located.is_sent_along else None,
    )


def accept(context: ApiContext, asked: AcceptArguments) -> AcceptAnswer:
    """Keep exactly the edits of a preview. It is accepted once, however many ask; after an error it
    can be tried again. Raises `Problem`, `EditError`, `StoreError`, `ConversationBusy`."""
    pending = context.take_preview(asked.preview)
    try:
        return _accept(context, pending, asked)
    except Exception:
        context.put_back(asked.preview, pending)
        raise


def _accept(context: ApiContext, pending: PendingPreview, asked: AcceptArguments) -> AcceptAnswer:
    conversation, preview = pending.conversation, pending.preview
    for id, text in (asked.amend or {}).items():
        preview = preview.amend(id, text)
    store = context.pipeline.resources.store
    with conversation.hold(context.pipeline.settings.decide_timeout_seconds):
        view = conversation.compactor.accept(preview, actor=asked.actor)
        _drop_late_thinking(context, conversation, preview.edits)
        save_edits(conversation, view, store)
        _discard_prepared(conversation, view)
        _update_latest(context, conversation, (), view.edits)
    _save_session(context)
    return AcceptAnswer(
        session=conversation.name,
        edits=[edit.id for edit in preview.edits],
        tokens_after=request_tokens(view, pending.unseen_tokens),
    )


def _drop_late_thinking(
    context: ApiContext, conversation: Conversation, edits: Sequence[Edit]
) -> None:
    """Drop signatures of thinking that is newer than the preview, without its edits (AN-7)."""
    if conversation.latest is not None and (
        late := edits_dropping_thinking(conversation.latest.view, edits)
    ):
        context.pipeline.resources.store.save(late)
        _update_latest(context, conversation, (), late)


def revert(context: ApiContext, asked: RevertArguments) -> RevertAnswer:
    """Take edits back. Raises `Problem`, `FormatError`, `EditError`, `StoreError`,
    `ConversationBusy`."""
    located, store = locate(context, asked), context.pipeline.resources.store
    conversation, turn = located.conversation, located.turn
    with conversation.hold(context.pipeline.settings.decide_timeout_seconds):
        before = turn.show()
        edits = [find_edit(before, id) for id in asked.edits]
        edits += [edit for edit in find_thinking_copies(before, edits) if edit not in edits]
        result_edits = find_result_edits(conversation.tenant, before, edits)
        ids = [edit.id for edit in edits]
        after = conversation.compactor.revert(turn.payload, *ids, actor=asked.actor)
        store.remove(edit.id for edit in result_edits)
        conversation.shown.remove(set(ids))
        save_edits(conversation, after, store)
        _discard_prepared(conversation, after)
        _update_latest(context, conversation, edits, after.edits)
    _save_session(context)
    hard, tokens_after = turn.levels.hard, request_tokens(after, located.unseen_tokens)
    return RevertAnswer(
        session=conversation.name,
        reverted=ids,
        tokens_before=request_tokens(before, located.unseen_tokens),
        tokens_after=tokens_after,
        fits=hard is None or after.profile.calibrate(tokens_after) < hard,
    )


def _save_session(context: ApiContext) -> None:
    """Let all processes know at once; if that fails it is tried again later."""
    with suppress(StoreError):
        context.sessions.save()


def _discard_prepared(conversation: Conversation, view: View) -> None:
    """Drop what was prepared before, and do not compact again at once."""
    conversation.prefetch.preview = conversation.prefetch.job = None
    conversation.baseline_tokens = view.tokens


def _update_latest(
    context: ApiContext,
    conversation: Conversation,
    removed: Sequence[Edit],
    edits: Sequence[Edit],
) -> None:
    """Let the latest view show *edits*, and no more those that were *removed*; so say the lists of
    all processes."""
    if conversation.latest is None:
        return
    view = conversation.latest.view
    shown = {edit.id for edit in view.edits}
    reverted = [edit.id for edit in removed if edit.id in shown]
    view = view.revert(*reverted) if reverted else view
    view = view.apply_valid(edit for edit in edits if edit.id not in shown)
    now = context.pipeline.settings.clock()
    conversation.latest = conversation.latest._replace(view=view, edited_at=now)
    context.pipeline.resources.note_session(conversation)
