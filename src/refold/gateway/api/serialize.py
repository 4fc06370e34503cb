"""What is told of sessions, edits and attempts: figures, and the words that stand in the place of what is hidden."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from refold.compactor.ledger_rows import grade_edit
from refold.compactor.losses import Losses
from refold.core.edit_stack import VisibleEdit
from refold.core.view import View
from refold.edits import Attempt, Edit
from refold.gateway.api import savings as counting
from refold.gateway.conversations.conversations import Conversation
from refold.gateway.ledger.cost import DOLLAR
from refold.gateway.ledger.sql import NOTHING, Booked
from refold.messages import Message
from refold.stores.store import LedgerRow
from refold.text.plain import readable_text

Json = dict[str, Any]
PART = 20_000
"""Characters of a text that are told at once; the operation `words` tells the rest."""


def session(thread: Conversation, books: Mapping[str, Booked] | None) -> Json:
    """One conversation in figures: its latest request as it is remembered, and its calls as they are booked.
    `thread.latest` must be there."""
    latest = thread.latest
    assert latest is not None  # noqa: S101 - as the docstring says
    told = {
        "id": thread.name,
        "remembered": True,
        "api": thread.api,
        "model": latest.model,
        "upstream": latest.upstream,
        "messages": len(latest.view.transcript),
        "tokens_before": counting.said(latest.view),
        "tokens_after": counting.sent(latest.view),
        "edits": len(latest.view.visible_edits),
        "last_seen": latest.sent_at,
    }
    return with_books(told, books)


def forgotten(name: str, hour: int) -> Json:
    """A session that is booked, and of which nothing else is remembered; *hour* is that of its latest call."""
    unknown = ("api", "upstream", "messages", "tokens_before", "tokens_after", "edits")
    return {"id": name, "remembered": False, "model": "", "last_seen": float(hour), **dict.fromkeys(unknown)}


def with_books(told: Json, books: Mapping[str, Booked] | None) -> Json:
    """A session with what the *books* say of all its calls: nothing where they cannot be read (None)."""
    if books is None:
        return told | dict.fromkeys(("requests", "saved_tokens", "saved_dollars"))
    one = books.get(told["id"], NOTHING)
    saved = None if one.saved is None else one.saved / DOLLAR
    figures = {"requests": one.calls, "saved_tokens": one.spared, "saved_dollars": saved}
    return told | figures | {"model": told["model"] or one.model}


def edits(
    view: View, placed: Iterable[VisibleEdit], made: Mapping[str, LedgerRow] | None = None, *, words: bool = False
) -> list[Json]:
    """Edits of *view*, with when each was *made*, where that is known, and the *words* that were said, where they may
    be told."""
    return [_edit(view, one.edit, one.tokens, (made or {}).get(one.edit.id), words=words) for one in placed]


def _edit(view: View, edit: Edit, shown: int, row: LedgerRow | None, *, words: bool) -> Json:
    text, said = instead(view, edit), hidden(view, edit) if words else ""
    return {
        "id": edit.id,
        "by": edit.by,
        "start": edit.start,
        "stop": edit.stop,
        "tokens_before": view.base.tokens(edit.start, edit.stop),
        "tokens_after": shown,
        "grade": grade_edit(edit, view.transcript.messages),
        "text": text[:PART],
        "text_more": max(0, len(text) - PART),
        "said": said[:PART] if words else None,
        "said_more": max(0, len(said) - PART),
        "when": row.when if row else None,
        "actor": row.actor if row else "",
        "cost": row.cost if row else 0.0,
    }


def instead(view: View, edit: Edit) -> str:
    """The words of ours that *edit* shows. What was said and still stands there is left out: it is none of
    what an answer may hold."""
    said = view.transcript.messages[edit.start : edit.stop]
    fresh = [message for message in edit.insert if message not in said]
    if len(said) == len(edit.insert):
        return _added(fresh, said)
    return "\n\n".join(map(readable_text, fresh))


def hidden(view: View, edit: Edit) -> str:
    """What was said where *edit* stands."""
    return "\n\n".join(map(readable_text, view.transcript.messages[edit.start : edit.stop]))


def part(whole: str, offset: int, most: int) -> Json:
    """*most* characters of a text from *offset* on, how long it is, and where the next part begins, if there is one."""
    end = offset + most
    return {"text": whole[offset:end], "total": len(whole), "next": end if end < len(whole) else None}


def _added(fresh: Iterable[Message], said: Iterable[Message]) -> str:
    """The lines of *fresh* that do not stand in *said*."""
    old = {line for message in said for line in readable_text(message).splitlines()}
    return "\n".join(line for message in fresh for line in readable_text(message).splitlines() if line not in old)


def row(one: LedgerRow) -> Json:
    """A line of the ledger."""
    return asdict(one)


def attempt(one: Attempt) -> Json:
    """How a strategy's run ended."""
    names = ("by", "outcome", "reason", "before", "after", "edits", "calls", "cost", "model")
    return {name: getattr(one, name) for name in names}


def vanished(gone: Losses, *, words: bool) -> Json:
    """How much would vanish, and which *words*, all of them, for who has sent them."""
    found = {name: getattr(gone, name) for name in ("requests", "constraints", "paths", "identifiers")}
    return {name: {"count": len(those), "names": list(those) if words else []} for name, those in found.items()}
