"""Looking: `sessions`, `history` and `recall`. Nothing is changed."""

from functools import partial
from typing import Any

from refold.gateway.api import telling
from refold.gateway.api.desk import Desk
from refold.gateway.api.finding import find, known
from refold.gateway.exchange import Held
from refold.gateway.threads import Thread
from refold.ledger import Row
from refold.recalling import recall as search

Json = dict[str, Any]


async def sessions(desk: Desk, asked: Json) -> Json:
    """The conversations that this process knows, the latest first."""
    threads = sorted((one for one in desk.exchange.threads if one.latest), key=_when, reverse=True)
    first, limit = asked.get("offset", 0), asked.get("limit", 100)
    shown = [telling.session(one, desk.exchange.settings) for one in threads[first : first + limit]]
    return {"sessions": shown, "total": len(threads)}


async def history(desk: Desk, asked: Json) -> Json:
    """What was done to one conversation."""
    return await desk.aside(partial(_history, desk, asked))


async def recall(desk: Desk, asked: Json) -> Json:
    """What the edits hide of a history that is sent along, searched."""
    return await desk.aside(partial(_recall, desk, asked))


def _when(thread: Thread) -> float:
    return thread.latest.when if thread.latest else 0.0


def _history(desk: Desk, asked: Json) -> Json:
    thread = known(desk, asked["session"])
    assert thread.latest is not None  # noqa: S101 - `known` has looked
    view = thread.latest.view
    tips = set(view.transcript.tips)
    rows = [row for row in _ledger(desk) if row.tip in tips]
    made = {row.edit: row for row in rows if row.edit and row.action in ("compact", "accept")}
    return {
        "session": telling.session(thread, desk.exchange.settings),
        "edits": telling.edits(view, view.top, made),
        "attempts": [telling.row(one) for one in rows[-asked.get("limit", 100) :]],
    }


def _ledger(desk: Desk) -> list[Row]:
    """All rows, of all conversations; none where the store keeps no ledger."""
    read = getattr(desk.exchange.store, "ledger", None)
    return list(read()) if read else []


def _recall(desk: Desk, asked: Json) -> Json:
    found = find(desk, asked)
    with Held(found.thread, desk.exchange.settings.deadline / 2):
        view = desk.exchange.turns.shown(found.turn)[0]
    return {
        "session": found.thread.name,
        "hits": [one._asdict() for one in search(view, asked["query"], asked.get("limit", 10))],
    }
