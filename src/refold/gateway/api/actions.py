"""The operations that change something. `accept`, `revert` and `restore` change the edits of a
conversation. `pin` and `unpin` change what compactions keep visible. `report_usage` books a call
that did not pass through the gateway."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Annotated, Any

from msgspec import UNSET, UnsetType

from refold.codecs.codec import Payload
from refold.compactor.by_hand import Preview
from refold.compactor.compactor import Compactor
from refold.compactor.late_edits import edits_dropping_thinking, find_thinking_copies
from refold.compactor.pins import Pins, add_words, find_pinned, is_whole
from refold.core.view import View
from refold.edits import Edit
from refold.errors import EditError, StoreError
from refold.gateway.api.api_types import (
    EMPTY_OR_NOT_BLANK,
    AboutSession,
    AcceptAnswer,
    AcceptArguments,
    ConversationArguments,
    Count,
    EditId,
    Offset,
    OfSession,
    RequestArguments,
    RestoreAnswer,
    RestoreArguments,
    RevertAnswer,
    RevertArguments,
    Tokens,
    about,
)
from refold.gateway.api.context import ApiContext, PendingPreview, Problem
from refold.gateway.api.lookup import (
    find_edits,
    find_session,
    ledger_rows,
    locate,
    read_request,
    rows_by_edit,
)
from refold.gateway.api.page_types import Pin
from refold.gateway.api.previews import choose_parts, make_pending
from refold.gateway.conversations.conversations import Conversation, count_unedited
from refold.gateway.conversations.persistence import find_result_edits, save_edits
from refold.gateway.conversations.stores import hash_parts
from refold.gateway.exchange import Outgoing
from refold.gateway.ledger.accounting import (
    BilledCall,
    compute_cost,
    has_hour_cache,
    read_billed_tokens,
)
from refold.gateway.ledger.entry import DOLLAR, clean_name
from refold.gateway.ledger.sessions import SessionRow
from refold.gateway.pipeline.turns import model_of, tenant_of
from refold.messages import Message
from refold.rules.request import common_length
from refold.scorers.scorer import Says
from refold.session_files.edited import (
    NO_COMPACTION,
    EditedSession,
    save_first_sight,
    subtract_edits,
    undo_edits,
)
from refold.text.json_values import JsonObject
from refold.text.plain import readable_text
from refold.tokens.model_table import find_rates
from refold.tokens.usage import MOST_TOKENS, read_usage

# --- edits ----------------------------------------------------------------------------------------


def accept(context: ApiContext, arguments: AcceptArguments) -> AcceptAnswer:
    """Keep exactly the edits of a preview. It is accepted once, however many ask, and can be
    retried after an error. Raises `Problem`, `EditError`, `StoreError`, `ConversationBusy`."""
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
        raise Problem(409, "nothing", "No edit of the preview is selected.")
    if pending.file is not None:
        save_first_sight(pending.file)
        view = conversation.compactor.accept(preview, actor=actor)
        return AcceptAnswer(conversation.name, _name_edits(preview), view.tokens)
    with conversation.hold(context.pipeline.settings.decide_timeout_seconds):
        if pending.is_latest:
            _reject_rewritten(context.sessions.find(conversation.name), preview.view)
        view = conversation.compactor.accept(preview, actor=actor)
        _drop_late_thinking(context, conversation, preview.edits)
        save_edits(conversation, view, context.pipeline.store)
        _discard_prepared(conversation, view)
        _update_latest(context, conversation, (), view.edits)
    _save_session(context)
    return AcceptAnswer(
        session=conversation.name,
        edits=_name_edits(preview),
        tokens_after=pending.count(view),
    )


def _name_edits(preview: Preview) -> list[str]:
    """Return the ids of its edits, without repeats from several rounds."""
    return list(dict.fromkeys(edit.id for edit in preview.edits))


def _reject_rewritten(row: SessionRow | None, view: View) -> None:
    """Raise `Problem` 409 if the client has rewritten the history of *view*, so that its edits
    would have no effect."""
    tips = view.transcript.tips
    length = min(len(row.tips), len(tips)) - 1 if row is not None else 0
    if row is not None and row.tip_at(length) != tips[length]:
        raise Problem(
            409, "rewritten", "The client has rewritten the history since: make another preview."
        )


def _drop_late_thinking(
    context: ApiContext, conversation: Conversation, edits: Sequence[Edit]
) -> None:
    """Drop thinking that is newer than the preview and was signed without its edits (AN-7)."""
    if conversation.latest is not None and (
        late := edits_dropping_thinking(conversation.latest.view, edits)
    ):
        context.pipeline.store.save(late)
        _update_latest(context, conversation, (), late)


def revert(context: ApiContext, arguments: RevertArguments) -> RevertAnswer:
    """Revert edits. Raises `Problem`, `FormatError`, `EditError`, `StoreError`,
    `ConversationBusy`."""
    if file := context.find_named_file(arguments):
        return _revert_in_file(context, file.edited, arguments)
    located, store = locate(context, arguments), context.pipeline.store
    conversation, turn = located.conversation, located.turn
    with conversation.hold(context.pipeline.settings.decide_timeout_seconds):
        before = turn.show()
        edits = find_edits(before, arguments.edits)
        if arguments.since:
            edits += _find_later(context, before, edits)
        edits += find_thinking_copies(before, edits)
        result_edits = find_result_edits(conversation.tenant, before, edits)
        ids = [edit.id for edit in edits]
        after = conversation.compactor.revert(turn.payload, *ids, actor=arguments.actor)
        store.remove(edit.id for edit in result_edits)
        conversation.shown.remove(set(ids))
        save_edits(conversation, after, store)
        _discard_prepared(conversation, after)
        _update_latest(context, conversation, edits, after.edits)
    _save_session(context)
    staying = {edit.id for edit in after.edits}  # edits that drop thinking (AN-7)
    hard, estimate = turn.levels.hard, after.tokens_uncalibrated + located.unseen_tokens
    preview = Preview(after, before, tuple(edits))
    redo = located.offer(preview, is_readable=located.is_sent_along)
    return RevertAnswer(
        session=conversation.name,
        reverted=[id for id in ids if id not in staying],
        tokens_before=redo.count(before),
        tokens_after=redo.count(after),
        fits=hard is None or after.profile.calibrate(estimate) < hard,
        redo=context.add_preview(redo),
    )


def _revert_in_file(
    context: ApiContext, edited: EditedSession, arguments: RevertArguments
) -> RevertAnswer:
    """Revert edits of a session in a client's file, as `refold revert` does."""
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
    """Return the other visible edits that were made when the first of *edits* was, or later. Local
    edits have no time: they come before all."""
    rows = rows_by_edit(ledger_rows(context, view.transcript.tips))
    times = {id: row.when for id, row in rows.items()}
    first = min((times.get(edit.id, 0.0) for edit in edits), default=0.0)
    shown = [placed.edit for placed in view.visible_edits]
    return [edit for edit in shown if edit not in edits and times.get(edit.id, -1.0) >= first]


def restore(context: ApiContext, arguments: RestoreArguments) -> RestoreAnswer:
    """Send a hidden message again: revert an edit that hides nothing else, or add the message's
    text to what the edit shows. Raises as `revert`."""
    located = locate(context, ConversationArguments(session=arguments.session))
    view, at = located.view, arguments.message
    placed = [edit for edit, _ in view.visible_edits if edit.start <= at < edit.stop]
    if not placed:
        raise Problem(409, "not_hidden", "This message is sent as it is.")
    (edit,) = placed
    if edit.stop == edit.start + 1:
        session, actor = arguments.session, arguments.actor
        undone = revert(context, RevertArguments(session=session, edits=[edit.id], actor=actor))
        return RestoreAnswer(
            undone.session, None, undone.reverted, undone.tokens_after, undone.redo
        )
    words = f"Message {at}, word for word:\n{readable_text(view.transcript.messages[at])}"
    if any(map(Says((words,)), edit.insert)):
        raise Problem(409, "not_hidden", "The text of this message is sent already.")
    longer = add_words(edit, words)
    if longer is None:
        raise Problem(
            409, "no_place", "The text sent there cannot take in the message: undo the edit."
        )
    added = view.fold(edit.start, edit.stop, *longer.insert, by=f"Restore({at})")
    preview = Preview(view, view.apply(added), (added,))
    pending = located.offer(preview, is_readable=False)
    done = _accept(context, pending, arguments.actor)
    return RestoreAnswer(arguments.session, added.id, [], done.tokens_after, None)


def _save_session(context: ApiContext) -> None:
    """Let all processes know at once. A failure is retried later."""
    with suppress(StoreError):
        context.sessions.save()


def _discard_prepared(conversation: Conversation, view: View) -> None:
    """Drop the prepared compaction, and do not compact again at once."""
    conversation.prefetch.preview = conversation.prefetch.job = None
    conversation.baseline_tokens = view.tokens


def _update_latest(
    context: ApiContext,
    conversation: Conversation,
    removed: Sequence[Edit],
    edits: Sequence[Edit],
) -> None:
    """Apply *edits* to the latest view and revert *removed* ones, for the lists of all
    processes."""
    if conversation.latest is None:
        return
    view = conversation.latest.view
    shown = {edit.id for edit in view.edits}
    reverted = [edit.id for edit in removed if edit.id in shown]
    view = view.revert(*reverted) if reverted else view
    shown.difference_update(reverted)
    view = view.apply_valid(edit for edit in edits if edit.id not in shown)
    now = context.pipeline.settings.clock()
    conversation.latest = conversation.latest._replace(view=view, edited_at=now)
    context.pipeline.resources.note_session(conversation)


# --- pins -----------------------------------------------------------------------------------------

MOST_PINS = 100
"""Maximum number for one session."""


class PinArguments(OfSession):
    """A session, and what to pin."""

    message: Offset
    words: Annotated[
        str,
        about(
            "Words of that message; empty: the whole message.",
            max_length=4_000,
            pattern=EMPTY_OR_NOT_BLANK,
        ),
    ] = ""


class UnpinArguments(OfSession):
    """A session, and the pin to remove."""

    pin: EditId


class PinAnswer(AboutSession):
    """All pins of a session."""

    pins: list[Pin]


def pin(context: ApiContext, arguments: PinArguments) -> PinAnswer:
    """Pin a message, or words in it. Raises `Problem`, `FormatError`, `StoreError`,
    `ConversationBusy`."""
    located = locate(context, ConversationArguments(session=arguments.session))
    messages = located.view.transcript.messages
    if arguments.message >= len(messages):
        raise Problem(404, "no_message", "The session has no such message.")
    message, words = messages[arguments.message], " ".join(arguments.words.split())
    if words and not Says((words,))(message):
        raise Problem(409, "not_there", "The message does not contain these words.")
    pins = Pins(context.pipeline.store, arguments.session)
    if len(pins.load()) >= MOST_PINS:
        raise Problem(409, "too_many", f"A session has at most {MOST_PINS} pins.")
    pins.add(arguments.message, message, words)
    return _answer(context, arguments.session)


def unpin(context: ApiContext, arguments: UnpinArguments) -> PinAnswer:
    """Remove a pin. Raises `Problem` 404, `StoreError`."""
    find_session(context, arguments.session)
    pins = Pins(context.pipeline.store, arguments.session)
    if not pins.remove(arguments.pin):
        raise Problem(404, "no_pin", "The session has no such pin.")
    return _answer(context, arguments.session)


def _answer(context: ApiContext, session: str) -> PinAnswer:
    row = find_session(context, session)
    return PinAnswer(session, list_pins(context, row.tenant, session))


def list_pins(context: ApiContext, tenant: str, session: str) -> list[Pin]:
    """Return the pins of a session. If its messages are recorded, each has its words and its
    current position: a client may have rewritten what precedes it. Raises `StoreError`."""
    transcripts, who = context.transcripts, (tenant, session)
    is_readable = transcripts.is_recorded(*who)

    @cache
    def load_all() -> Sequence[Message]:
        recorded = transcripts.load(*who)
        return recorded.messages if recorded is not None else ()

    def find(pin: Edit) -> int | None:
        same = transcripts.load_message(*who, pin.start) if is_readable else pin.insert[0]
        if same is not None and find_pinned(pin, (same,)) is not None:
            return pin.start
        return find_pinned(pin, load_all())

    return [
        Pin(
            pin.id,
            find(pin),
            pin.insert[0].text if is_readable and not is_whole(pin) else "",
            is_whole(pin),
        )
        for pin in Pins(context.pipeline.store, session).load()
    ]


# --- reported calls -------------------------------------------------------------------------------


class ReportUsageArguments(RequestArguments, kw_only=True):
    """A model call: its owner, its request and its usage."""

    conversation_id: Annotated[
        str, about("The program's own id of the conversation.", min_length=1, max_length=500)
    ]
    agent_id: Annotated[str, about("Program; the session's client in lists.", max_length=100)] = ""
    request: Annotated[
        JsonObject, about("The whole request body as it was sent, of any of the four APIs.")
    ]
    history: Annotated[
        list[JsonObject] | UnsetType,
        about("All unedited messages, in the format of `request`, if that was compacted."),
    ] = UNSET
    usage: Annotated[
        JsonObject,
        about("The usage object of the answer, unchanged, of any provider."),
    ]


class ReportUsageAnswer(AboutSession):
    """What was booked."""

    original: Annotated[Tokens, about("Tokens of the unedited request.")]
    sent: Annotated[Tokens, about("Tokens of the request as sent.")]
    input: Annotated[Count, about("Tokens of the request as reported, cached ones included.")]
    output: Count
    spent: Annotated[float | None, about("US dollars; null if the model has no known price.")]


def report_usage(context: ApiContext, arguments: ReportUsageArguments) -> ReportUsageAnswer:
    """Book a call. Raises `Problem` 422, `FormatError`."""
    model = arguments.model or arguments.request.get("model")
    if not isinstance(model, str) or not model:
        raise Problem(422, "no_model", "`request` names no model, and `model` is missing.")
    incoming, payload = read_request(context, arguments.request, arguments)
    tokens = read_billed_tokens(arguments.usage, hour=has_hour_cache(incoming.body))
    if tokens is None:
        wanted = f"tokens of a request, as any provider has, and at most {MOST_TOKENS:,}"
        raise Problem(422, "no_usage", f"`usage` has to have {wanted}.")
    _reject_contradiction(arguments.usage)
    view = _show(payload)
    if arguments.history is not UNSET:
        whole = {**arguments.request, payload.codec.FIELD: arguments.history}
        history = _show(read_request(context, whole, arguments)[1])
        view = _fold_difference(history, view.transcript.messages)
    model, names = model_of(payload), (arguments.agent_id, arguments.conversation_id)
    session = hash_parts("reported", incoming.api, incoming.credential, *names)
    agent, name = map(clean_name, names)  # in a client's headers
    incoming = replace(incoming, headers=(("user-agent", agent), ("x-session-id", name)))
    edits = tuple(edit.id for edit in view.edits)
    call = BilledCall(
        context.pipeline.settings.clock(),
        incoming,
        Outgoing(b"", edits, count_unedited(view), view.tokens, model=model),
        arguments.usage,
        tenant_of(incoming.api, incoming.credential),
        session,
        model,
        view,
        context.pipeline.resources.model_limits.usable_tokens(incoming, model),
    )
    context.ledger_writer.book(call)
    rates = find_rates(model, context.pipeline.settings.prices)
    return ReportUsageAnswer(
        session,
        count_unedited(view),
        view.tokens,
        tokens.input,
        tokens.output,
        sum(compute_cost(tokens, rates)) / DOLLAR if rates else None,
    )


def _reject_contradiction(usage: Any) -> None:
    """Raise `Problem` 422 if *usage* has more cached tokens than input tokens. `read_usage` first
    adds the cached ones for providers that, as Anthropic, leave them out of the input."""
    counts = read_usage(usage)
    if counts is not None and (cached := counts.cached + counts.written) > counts.input:
        raise Problem(
            422,
            "bad_usage",
            f"`usage` has {cached:,} tokens read from a cache or written to one, and the request "
            f"only {counts.input:,}: in this form the former are part of the latter. "
            "Anthropic's leaves them out of `input_tokens`, and has `cache_read_input_tokens`.",
        )


def _show(payload: Payload) -> View:
    return Compactor((), NO_COMPACTION, format=payload.codec).show(payload)


def _fold_difference(history: View, sent: Sequence[Message]) -> View:
    """Return *history* with one edit that makes it show *sent*. Raises `Problem` 422."""
    whole = history.transcript.messages
    start = common_length(whole, sent)
    if start == len(whole) == len(sent):
        return history
    stop = len(whole) - common_length(whole[start:][::-1], sent[start:][::-1])
    start = max((cut for cut in history.cuts if cut <= start), default=0)
    stop = min((cut for cut in history.cuts if cut >= stop), default=len(whole))
    insert = sent[start : len(sent) - (len(whole) - stop)]
    try:
        return history.apply(history.fold(start, stop, *insert, by="report_usage"))
    except (EditError, ValueError) as error:
        message = f"`request` cannot be what was sent for `history`: {error}"
        raise Problem(422, "not_a_view", message[:500]) from error
