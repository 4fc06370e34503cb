"""`preview`, `accept` and `revert`: a compaction by hand, and back."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from refold.compactor.preview import Preview
from refold.compactor.signed_thinking import edits_dropping_thinking, find_thinking_copies
from refold.core.view import View
from refold.edits import Edit
from refold.errors import EditError
from refold.gateway.api import savings as counting
from refold.gateway.api import savings as kept
from refold.gateway.api import serialize as telling
from refold.gateway.api.context import Desk, Offer, Problem
from refold.gateway.api.lookup import Found, find
from refold.gateway.conversations import result_edits as decisions
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.conversations.persistence import save_edits
from refold.stores.store import Store

Json = dict[str, Any]


async def preview(desk: Desk, asked: Json) -> Json:
    """What a compaction would do. Nothing is kept but the ledger's rows, and the preview for `accept`."""
    found, made, words = await desk.aside(partial(_previewed, desk, asked))
    name = desk.offer(Offer(found.thread, made, found.beside, words)) if made.edits else None
    return await desk.aside(partial(_told, found, made, name, words))


async def accept(desk: Desk, asked: Json) -> Json:
    """Keep exactly the edits of a preview."""
    return await desk.aside(partial(_taken, desk, asked))


async def revert(desk: Desk, asked: Json) -> Json:
    """Take edits back."""
    return await desk.aside(partial(_reverted, desk, asked))


# --- in a thread ------------------------------------------------------------------------------


def _previewed(desk: Desk, asked: Json) -> tuple[Found, Preview, bool]:
    """The conversation, what would be made of it, and whether its words may be told."""
    found = find(desk, asked)
    turns = desk.pipeline.turns
    with found.thread.hold(desk.pipeline.settings.decide_timeout_seconds / 2):
        view = turns.apply_known_edits(found.turn)[0]
    goal = view.profile.calibrate(max(0, asked["to"] - found.beside)) if "to" in asked else None
    made = found.thread.compactor.preview(found.turn.history, to=goal, actor=_actor(asked))
    return found, made, found.posted or kept.is_recorded(desk, found.thread)


def _told(found: Found, made: Preview, name: str | None, words: bool) -> Json:
    ids = {edit.id for edit in made.edits}
    before, after = (counting.sent(view, found.beside) for view in (made.before, made.view))
    return {
        "preview": name,
        "session": found.thread.name,
        "tokens_before": before,
        "tokens_after": after,
        "saved": before - after,
        "calls": made.calls,
        "cost": made.cost,
        "edits": telling.edits(
            made.view, [placed for placed in made.view.visible_edits if placed.edit.id in ids], words=words
        ),
        "summaries": made.summaries(),
        "attempts": [telling.attempt(one) for one in made.attempts],
        "vanished": telling.vanished(made.losses, words=words),
        "request": json.loads(found.turn.encode(made.view)) if found.posted else None,
    }


def _taken(desk: Desk, asked: Json) -> Json:
    """Accept a preview once, however many ask for it; after an error it can be tried again."""
    offer = desk.take(asked["preview"])
    if offer is None:
        raise Problem(404, "no_preview", "There is no such preview: it was accepted, or others came after it.")
    try:
        return _accepted(desk, offer, asked)
    except Exception:
        desk.put_back(asked["preview"], offer)
        raise


def _accepted(desk: Desk, offer: Offer, asked: Json) -> Json:
    thread, made = offer.thread, offer.preview
    for id, text in asked.get("amend", {}).items():
        made = made.amend(id, text)
    store = desk.pipeline.turns.store
    with thread.hold(desk.pipeline.settings.decide_timeout_seconds):
        view = thread.compactor.accept(made, actor=_actor(asked))
        _settled(thread, made.edits, store)
        save_edits(thread, view, store)
        _go_on(thread, view)
        _show(thread, (), view.edits)
    return {
        "session": thread.name,
        "edits": [edit.id for edit in made.edits],
        "tokens_after": counting.sent(view, offer.beside),
    }


def _settled(thread: Conversation, edits: Sequence[Edit], store: Store) -> None:
    if thread.latest is not None and (late := edits_dropping_thinking(thread.latest.view, edits)):
        store.save(late)
        _show(thread, (), late)


def _reverted(desk: Desk, asked: Json) -> Json:
    found, turns = find(desk, asked), desk.pipeline.turns
    thread = found.thread
    with thread.hold(desk.pipeline.settings.decide_timeout_seconds):
        view = turns.apply_known_edits(found.turn)[0]
        gone = [_edit(view, id) for id in asked["edits"]]
        gone += [edit for edit in find_thinking_copies(view, gone) if edit not in gone]
        decided = decisions.extract(thread.tenant, view, gone)
        after = thread.compactor.revert(found.turn.history, *(edit.id for edit in gone), actor=_actor(asked))
        turns.store.remove(edit.id for edit in decided)
        _forget(thread, {edit.id for edit in gone})
        save_edits(thread, after, turns.store)
        _go_on(thread, after)
        _show(thread, gone, after.edits)
    hard = turns.limits(found.turn).hard
    return {
        "session": thread.name,
        "reverted": [edit.id for edit in gone],
        "tokens_before": counting.sent(view, found.beside),
        "tokens_after": counting.sent(after, found.beside),
        "fits": hard is None or after.profile.calibrate(counting.sent(after, found.beside)) < hard,
    }


def _edit(view: View, id: str) -> Edit:
    try:
        return view.find(id)
    except EditError as error:
        raise Problem(404, "no_edit", str(error)) from error


def _forget(thread: Conversation, ids: set[str]) -> None:
    """The process shows these no more, not even when the store fails."""
    thread.shown.store.remove(ids)
    thread.shown.unsaved = [edit for edit in thread.shown.unsaved if edit.id not in ids]
    thread.shown.ids -= ids


def _go_on(thread: Conversation, view: View) -> None:
    """What was prepared for the conversation as it was is worth nothing, and nothing is thought of at once."""
    thread.prefetch.preview = thread.prefetch.job = None
    thread.baseline_tokens = view.tokens


def _show(thread: Conversation, gone: Sequence[Edit], now: Sequence[Edit]) -> None:
    """The latest view, as it will be."""
    if thread.latest is None:
        return
    view = thread.latest.view
    known = {edit.id for edit in view.edits}
    lost = [edit.id for edit in gone if edit.id in known]
    view = view.revert(*lost) if lost else view
    view = view.apply_valid(edit for edit in now if edit.id not in known)
    thread.latest = thread.latest._replace(view=view)


def _actor(asked: Json) -> str:
    actor: str = asked.get("actor", "api")
    return actor
