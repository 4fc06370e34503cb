"""Looking: `sessions`, `history` and `recall`. Nothing is changed."""

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from refold.gateway.api import kept, telling
from refold.gateway.api.desk import Desk
from refold.gateway.api.finding import find, known
from refold.gateway.api.problems import Problem
from refold.gateway.threads import Held, Thread
from refold.ledger import Recorder, Row, rows_of
from refold.recalling import recall as search
from refold.view import View

Json = dict[str, Any]


async def sessions(desk: Desk, asked: Json) -> Json:
    """The conversations that this process knows, the latest first."""
    return await desk.aside(partial(_sessions, desk, asked))


async def history(desk: Desk, asked: Json) -> Json:
    """What was done to one conversation."""
    return await desk.aside(partial(_history, desk, asked))


async def recall(desk: Desk, asked: Json) -> Json:
    """What the edits hide, searched: of a history that is sent along, or that is recorded."""
    return await desk.aside(partial(_recall, desk, asked))


def _when(thread: Thread) -> float:
    return thread.latest.when if thread.latest else 0.0


def _sessions(desk: Desk, asked: Json) -> Json:
    threads = sorted((one for one in desk.exchange.threads if one.latest), key=_when, reverse=True)
    first, limit = asked.get("offset", 0), asked.get("limit", 100)
    told = threads[first : first + limit]
    saved = kept.saved(desk, told)
    return {"sessions": [telling.session(one, saved) for one in told], "total": len(threads)}


def _history(desk: Desk, asked: Json) -> Json:
    thread = known(desk, asked["session"])
    assert thread.latest is not None  # noqa: S101 - `known` has looked
    view = thread.latest.view
    rows = _rows(desk, view)
    made = {row.edit: row for row in rows if row.edit and row.action in ("compact", "accept")}
    return {
        "session": telling.session(thread, kept.saved(desk, [thread])),
        "edits": telling.edits(view, view.top, made, words=kept.is_recorded(desk, thread)),
        "attempts": [telling.row(one) for one in rows[-asked.get("limit", 100) :]],
    }


def _rows(desk: Desk, view: View) -> Sequence[Row]:
    """What the ledger says of this history; nothing where the store keeps none."""
    store = desk.exchange.store
    return rows_of(cast("Recorder", store), view.transcript.tips) if hasattr(store, "ledger") else ()


def _recall(desk: Desk, asked: Json) -> Json:
    thread, view = _readable(desk, asked)
    hits = search(view, asked["query"], asked.get("limit", 10))
    return {"session": thread.name, "hits": [one._asdict() for one in hits]}


def _readable(desk: Desk, asked: Json) -> tuple[Thread, View]:
    """A conversation whose words may be told to who asks. Raises `Problem`."""
    if "request" in asked:
        found = find(desk, asked)
        with Held(found.thread, desk.exchange.settings.deadline / 2):
            return found.thread, desk.exchange.turns.shown(found.turn)[0]
    thread = known(desk, asked["session"])
    if thread.latest is None or not kept.is_recorded(desk, thread):
        raise Problem(409, "history_needed", "No transcript of this session is recorded: send it as `request`.")
    return thread, thread.latest.view
