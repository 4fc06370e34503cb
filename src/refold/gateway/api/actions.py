"""The operations that change a conversation: `accept`, `revert`, `restore`, `pin` and `unpin`."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

from refold.compactor.by_hand import Preview
from refold.compactor.late_edits import edits_dropping_thinking, find_thinking_copies
from refold.compactor.pins import WHOLE, Pins, add_words
from refold.core.view import View
from refold.edits import Edit
from refold.errors import StoreError
from refold.gateway.api.answers import AcceptAnswer, Answer, RevertAnswer
from refold.gateway.api.arguments import (
    AcceptArguments,
    Arguments,
    ConversationArguments,
    EditId,
    Offset,
    RestoreArguments,
    RevertArguments,
    SessionId,
    about,
)
from refold.gateway.api.context import ApiContext, PendingPreview, Problem
from refold.gateway.api.lookup import (
    find_edits,
    find_named_file,
    find_session,
    ledger_rows,
    locate,
    rows_by_edit,
)
from refold.gateway.api.page_types import Pin, RestoreAnswer
from refold.gateway.api.previews import choose_parts, make_pending
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.conversations.persistence import find_result_edits, save_edits
from refold.scorers.scorer import Says
from refold.session_files.edited import (
    EditedSession,
    save_first_sight,
    subtract_edits,
    undo_edits,
)
from refold.text.plain import readable_text


def accept(context: ApiContext, arguments: AcceptArguments) -> AcceptAnswer:
    """Keep exactly the edits of a preview. It is accepted once, however many ask; after an error it
    can be tried again. Raises `Problem`, `EditError`, `StoreError`, `ConversationBusy`."""
    pending = context.take_preview(arguments.preview)
    try:
        chosen = choose_parts(pending.preview, arguments)
        return _accept(context, pending._replace(preview=chosen), arguments.actor)
    except Exception:
        context.put_back(arguments.preview, pending)
        raise


def _accept(context: ApiContext, pending: PendingPreview, actor: str) -> AcceptAnswer:
    conversation, preview = pending.conversation, pending.preview
    if not preview.edits:
        raise Problem(409, "nothing", "No part of the preview is chosen.")
    store = context.pipeline.resources.store
    if pending.file is not None:
        save_first_sight(pending.file)
        view = conversation.compactor.accept(preview, actor=actor)
        return AcceptAnswer(conversation.name, [edit.id for edit in preview.edits], view.tokens)
    with conversation.hold(context.pipeline.settings.decide_timeout_seconds):
        view = conversation.compactor.accept(preview, actor=actor)
        _drop_late_thinking(context, conversation, preview.edits)
        save_edits(conversation, view, store)
        _discard_prepared(conversation, view)
        _update_latest(context, conversation, (), view.edits)
    _save_session(context)
    return AcceptAnswer(
        session=conversation.name,
        edits=[edit.id for edit in preview.edits],
        tokens_after=view.tokens_uncalibrated + pending.unseen_tokens,
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


def revert(context: ApiContext, arguments: RevertArguments) -> RevertAnswer:
    """Take edits back. Raises `Problem`, `FormatError`, `EditError`, `StoreError`,
    `ConversationBusy`."""
    if file := find_named_file(context, arguments):
        return _revert_in_file(context, file.edited, arguments)
    located, store = locate(context, arguments), context.pipeline.resources.store
    conversation, turn = located.conversation, located.turn
    with conversation.hold(context.pipeline.settings.decide_timeout_seconds):
        before = turn.show()
        edits = find_edits(before, arguments.edits)
        if arguments.since:
            edits += _find_later(context, before, edits)
        named = {edit.id for edit in edits}
        edits += [edit for edit in find_thinking_copies(before, edits) if edit.id not in named]
        result_edits = find_result_edits(conversation.tenant, before, edits)
        ids = [edit.id for edit in edits]
        after = conversation.compactor.revert(turn.payload, *ids, actor=arguments.actor)
        store.remove(edit.id for edit in result_edits)
        conversation.shown.remove(set(ids))
        save_edits(conversation, after, store)
        _discard_prepared(conversation, after)
        _update_latest(context, conversation, edits, after.edits)
    _save_session(context)
    hard, tokens_after = turn.levels.hard, after.tokens_uncalibrated + located.unseen_tokens
    return RevertAnswer(
        session=conversation.name,
        reverted=ids,
        tokens_before=before.tokens_uncalibrated + located.unseen_tokens,
        tokens_after=tokens_after,
        fits=hard is None or after.profile.calibrate(tokens_after) < hard,
        redo=context.add_preview(
            PendingPreview(
                conversation,
                Preview(after, before, tuple(edits)),
                located.unseen_tokens,
                located.is_sent_along,
                turn.model,
            )
        ),
    )


def _revert_in_file(
    context: ApiContext, edited: EditedSession, arguments: RevertArguments
) -> RevertAnswer:
    """Take back edits of the session in a client's file, as `refold revert` does."""
    save_first_sight(edited)
    before = edited.view
    first = find_edits(before, arguments.edits[:1])[0].id if arguments.since else ""
    ids = () if arguments.since else arguments.edits
    after = undo_edits(edited, ids, before=first, actor=arguments.actor)
    gone = subtract_edits(before, after.view)
    session = arguments.session or ""
    redo = make_pending(session, after, Preview(after.view, before, tuple(gone)))
    return RevertAnswer(
        session=session,
        reverted=[edit.id for edit in gone],
        tokens_before=before.tokens,
        tokens_after=after.view.tokens,
        fits=True,
        redo=context.add_preview(redo),
    )


def _find_later(context: ApiContext, view: View, edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits that show and were made when the first of *edits* was, or later."""
    rows = rows_by_edit(ledger_rows(context, view.transcript.tips))
    times = {id: row.when for id, row in rows.items()}
    first = min((times.get(edit.id, 0.0) for edit in edits), default=0.0)
    shown = [placed.edit for placed in view.visible_edits]
    return [edit for edit in shown if edit not in edits and times.get(edit.id, -1.0) >= first]


def restore(context: ApiContext, arguments: RestoreArguments) -> RestoreAnswer:
    """Have a hidden message sent again: take back the edit that hides nothing else, else show the
    message's words behind those that stand there instead. Raises as `revert`."""
    located = locate(context, ConversationArguments(session=arguments.session))
    conversation, view, at = located.conversation, located.view, arguments.message
    placed = [edit for edit, _ in view.visible_edits if edit.start <= at < edit.stop]
    if not placed:
        raise Problem(409, "not_hidden", "This message is sent as it is.")
    (edit,) = placed
    if edit.stop == edit.start + 1:
        undone = revert(context, RevertArguments(session=arguments.session, edits=[edit.id]))
        return RestoreAnswer(
            undone.session, None, undone.reverted, undone.tokens_after, undone.redo
        )
    words = f"Message {at}, word for word:\n{readable_text(view.transcript.messages[at])}"
    longer = add_words(edit, words)
    if longer is None:
        raise Problem(
            409, "no_place", "Nothing that stands there may carry the message: undo the edit."
        )
    added = view.fold(edit.start, edit.stop, *longer.insert, by=f"Restore({at})")
    pending = PendingPreview(
        conversation, Preview(view, view.apply(added), (added,)), located.unseen_tokens
    )
    done = _accept(context, pending, arguments.actor)
    return RestoreAnswer(arguments.session, added.id, [], done.tokens_after, None)


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


# --- what stays in sight whatever is compacted ----------------------------------------------------

MOST_PINS = 100
"""Of one session."""


class PinArguments(Arguments):
    """A session, and what should stay in sight."""

    session: SessionId
    message: Offset
    words: Annotated[
        str, about("Words of that message; the whole message if empty.", max_length=4_000)
    ] = ""


class UnpinArguments(Arguments):
    """A session, and the pin to take back."""

    session: SessionId
    pin: EditId


class PinAnswer(Answer):
    """All that is pinned in a session."""

    session: SessionId
    pins: list[Pin]


def pin(context: ApiContext, arguments: PinArguments) -> PinAnswer:
    """Keep a message, or words in it, in sight. Raises `Problem`, `FormatError`, `StoreError`,
    `ConversationBusy`."""
    located = locate(context, ConversationArguments(session=arguments.session))
    messages = located.view.transcript.messages
    if arguments.message >= len(messages):
        raise Problem(404, "no_message", "The session has no such message.")
    message, words = messages[arguments.message], " ".join(arguments.words.split())
    if words and not Says((words,))(message):
        raise Problem(409, "not_there", "The message does not say these words.")
    pins = Pins(context.pipeline.store, arguments.session)
    if len(pins.load()) >= MOST_PINS:
        raise Problem(409, "too_many", f"{MOST_PINS} pins are kept of a session.")
    pins.add(arguments.message, message, words)
    return _answer(context, arguments.session, pins)


def unpin(context: ApiContext, arguments: UnpinArguments) -> PinAnswer:
    """Take a pin back. Raises `Problem` 404, `StoreError`."""
    find_session(context, arguments.session)
    pins = Pins(context.pipeline.store, arguments.session)
    if not pins.remove(arguments.pin):
        raise Problem(404, "no_pin", "The session has no such pin.")
    return _answer(context, arguments.session, pins)


def _answer(context: ApiContext, session: str, pins: Pins) -> PinAnswer:
    row = find_session(context, session)
    readable = context.is_recorded(row.tenant, session)
    return PinAnswer(session, describe_pins(pins.load(), is_readable=readable))


def describe_pins(pins: Sequence[Edit], *, is_readable: bool) -> list[Pin]:
    """Return pins, with their words if these may be read."""
    return [
        Pin(
            pin.id,
            pin.start,
            pin.insert[0].text if is_readable and pin.by != WHOLE else "",
            pin.by == WHOLE,
        )
        for pin in pins
    ]
