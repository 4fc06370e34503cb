"""Looking: `sessions`, `totals`, `history`, `words` and `recall`. Nothing is changed."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from refold.core.view import View
from refold.errors import EditError, StoreError
from refold.gateway.api import listing
from refold.gateway.api import savings as kept
from refold.gateway.api import serialize as telling
from refold.gateway.api.context import Desk, Problem
from refold.gateway.api.lookup import find, known
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.ledger.report import Line, row
from refold.retrieval import recall as search
from refold.stores.store import LedgerRow, as_ledger_store, rows_about

Json = dict[str, Any]


async def sessions(desk: Desk, asked: Json) -> Json:
    """The conversations that this gateway has seen, the latest first."""
    return await desk.aside(partial(_sessions, desk, asked))


async def totals(desk: Desk, asked: Json) -> Json:
    """What the books say of all calls."""
    return await desk.aside(partial(_totals, desk, asked))


async def words(desk: Desk, asked: Json) -> Json:
    """What an edit shows, or what it hides, in full, a part at a time."""
    return await desk.aside(partial(_words, desk, asked))


async def history(desk: Desk, asked: Json) -> Json:
    """What was done to one conversation."""
    return await desk.aside(partial(_history, desk, asked))


async def recall(desk: Desk, asked: Json) -> Json:
    """What the edits hide, searched: of a history that is sent along, or that is recorded."""
    return await desk.aside(partial(_recall, desk, asked))


def _sessions(desk: Desk, asked: Json) -> Json:
    if asked.get("scope") == "remembered":
        return listing.remembered(desk, asked)
    mine = listing.remembered(desk, {"limit": len(desk.pipeline.conversations)})
    return listing.known(desk, mine["sessions"], asked)


def _totals(desk: Desk, asked: Json) -> Json:
    books, since = kept.ledger(desk), asked.get("since", 0)
    if books is None:
        raise StoreError("no ledger is kept")
    sums = books.totals(since)
    return {"since": since, **row(Line("total", sums.reported, sums.unreported, books.sessions(since)))}


def _history(desk: Desk, asked: Json) -> Json:
    thread = known(desk, asked["session"])
    assert thread.latest is not None  # noqa: S101 - `known` has looked
    view = thread.latest.view
    rows = _rows(desk, view)
    made = {one.edit: one for one in rows if one.edit and one.action in ("compact", "accept")}
    end = max(0, len(rows) - asked.get("offset", 0))
    return {
        "session": telling.session(thread, kept.booked(desk, [thread.name])),
        "edits": telling.edits(view, view.visible_edits, made, words=kept.is_recorded(desk, thread)),
        "attempts": [telling.row(one) for one in rows[max(0, end - asked.get("limit", 100)) : end]],
        "attempts_total": len(rows),
    }


def _rows(desk: Desk, view: View) -> Sequence[LedgerRow]:
    """What the ledger says of this history; nothing where the store keeps none."""
    store = desk.pipeline.store
    ledger = as_ledger_store(store)
    return rows_about(ledger, view.transcript.tips) if ledger else ()


def _words(desk: Desk, asked: Json) -> Json:
    """A part of the words of an edit. Raises `Problem`."""
    offer = desk.offers.get(asked.get("preview", ""))
    if "preview" in asked:
        if offer is None or offer.thread.name != asked["session"]:
            raise Problem(404, "no_preview", "There is no such preview: it was accepted, or others came after it.")
        thread, view, may = offer.thread, offer.preview.view, offer.words
    else:
        thread = known(desk, asked["session"])
        assert thread.latest is not None  # noqa: S101 - `known` has looked
        view, may = thread.latest.view, asked.get("of", "text") == "said" and kept.is_recorded(desk, thread)
    try:
        edit = view.find(asked["edit"])
    except EditError as error:
        raise Problem(404, "no_edit", str(error)) from error
    if asked.get("of", "text") == "said" and not may:
        raise Problem(409, "history_needed", "No transcript of this session is recorded: send it as `request`.")
    whole = telling.hidden(view, edit) if asked.get("of", "text") == "said" else telling.instead(view, edit)
    part = telling.part(whole, asked.get("offset", 0), asked.get("limit", telling.PART))
    return {"session": thread.name, "edit": edit.id, "of": asked.get("of", "text"), **part}


def _recall(desk: Desk, asked: Json) -> Json:
    thread, view = _readable(desk, asked)
    most = asked.get("limit", 10)
    hits = search(view, asked["query"], most + 1)
    return {"session": thread.name, "hits": [one._asdict() for one in hits[:most]], "more": len(hits) > most}


def _readable(desk: Desk, asked: Json) -> tuple[Conversation, View]:
    """A conversation whose words may be told to who asks. Raises `Problem`."""
    if "request" in asked:
        found = find(desk, asked)
        with found.thread.hold(desk.pipeline.settings.decide_timeout_seconds / 2):
            return found.thread, desk.pipeline.turns.apply_known_edits(found.turn)[0]
    thread = known(desk, asked["session"])
    if thread.latest is None or not kept.is_recorded(desk, thread):
        raise Problem(409, "history_needed", "No transcript of this session is recorded: send it as `request`.")
    return thread, thread.latest.view
