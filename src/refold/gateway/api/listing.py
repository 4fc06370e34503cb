"""The list of sessions: those of which this gateway remembers the latest request, and all others that are booked."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from refold.errors import StoreError
from refold.gateway.api import savings as kept
from refold.gateway.api import serialize as telling
from refold.gateway.api.context import Desk
from refold.gateway.conversations.conversations import Conversation

Json = dict[str, Any]
LIMIT = 100
"""Sessions that are told unless more are asked for."""


def remembered(desk: Desk, asked: Mapping[str, Any]) -> Json:
    """The sessions of which this process remembers the latest request, the latest first."""
    threads = sorted((one for one in desk.pipeline.conversations if one.latest), key=_when, reverse=True)
    page = _page(threads, asked)
    books = kept.booked(desk, (one.name for one in page))
    return {"sessions": [telling.session(one, books) for one in page], "total": len(threads)}


def known(desk: Desk, remembered: Iterable[Json], asked: Mapping[str, Any]) -> Json:
    """Those that are *remembered*, by whichever process, and those that are only booked, the latest first. What the
    books say is the same whoever is asked, and after every restart (finding F16)."""
    rows = {one["id"]: one for one in remembered}
    first, most = asked.get("offset", 0), asked.get("limit", LIMIT)
    others, more = list[Json](), 0
    books = kept.ledger(desk)
    with suppress(StoreError):
        if books is not None:
            newest = books.newest(first + most + len(rows))
            others = [telling.forgotten(name, hour) for name, hour in newest if name not in rows]
            more = books.sessions() - len(books.booked(rows))
    page = _page(sorted([*rows.values(), *others], key=_last_seen, reverse=True), asked)
    booked = kept.booked(desk, (one["id"] for one in page))
    return {"sessions": [telling.with_books(one, booked) for one in page], "total": len(rows) + more}


def _page(listed: Sequence[Any], asked: Mapping[str, Any]) -> Sequence[Any]:
    first = asked.get("offset", 0)
    return listed[first : first + asked.get("limit", LIMIT)]


def _when(thread: Conversation) -> float:
    return thread.latest.sent_at if thread.latest else 0.0


def _last_seen(session: Json) -> float:
    return float(session["last_seen"])
