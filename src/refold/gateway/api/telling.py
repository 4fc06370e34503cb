"""What is told of sessions, edits and attempts: figures, and the words that stand in the place of what is hidden."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from refold.attempt import Attempt
from refold.edits import Edit
from refold.gateway.threads import Thread
from refold.ledger import Row
from refold.messages import Message
from refold.readable import readable
from refold.records import grade
from refold.stack import Placed
from refold.vanished import Vanished
from refold.view import View

Json = dict[str, Any]
TEXT = 20_000
"""Characters of what stands in the place of something, that are told."""
NAMES = 200
"""Names of what would vanish, of each sort, that are told."""


def session(thread: Thread, saved: Mapping[str, float]) -> Json:
    """One conversation in figures, *saved* dollars by session among them. `thread.latest` must be there."""
    latest = thread.latest
    assert latest is not None  # noqa: S101 - as the docstring says
    return {
        "id": thread.name,
        "api": thread.api,
        "model": latest.model,
        "upstream": latest.upstream,
        "messages": len(latest.view.transcript),
        "tokens_before": latest.before,
        "tokens_after": latest.view.tokens,
        "edits": len(latest.view.top),
        "requests": thread.calls,
        "saved_tokens": thread.spared,
        "saved_dollars": saved.get(thread.name),
        "last_seen": latest.when,
    }


def edits(
    view: View, placed: Iterable[Placed], made: Mapping[str, Row] | None = None, *, words: bool = False
) -> list[Json]:
    """Edits of *view*, with when each was *made*, where that is known, and the *words* that were said, where they may
    be told."""
    return [_edit(view, one.edit, one.tokens, (made or {}).get(one.edit.id), words=words) for one in placed]


def _edit(view: View, edit: Edit, shown: int, row: Row | None, *, words: bool) -> Json:
    return {
        "id": edit.id,
        "by": edit.by,
        "start": edit.start,
        "stop": edit.stop,
        "tokens_before": view.ground.tokens(edit.start, edit.stop),
        "tokens_after": shown,
        "grade": grade(edit, view.transcript.messages),
        "text": instead(view, edit),
        "said": _said(view, edit) if words else None,
        "when": row.when if row else None,
        "actor": row.actor if row else "",
        "cost": row.cost if row else 0.0,
    }


def instead(view: View, edit: Edit) -> str:
    """The words of ours that *edit* shows. What was said and still stands there is left out: it is none of
    what an answer may hold."""
    said = view.transcript.messages[edit.start : edit.stop]
    fresh = [message for message in edit.insert if message not in said]
    text = _added(fresh, said) if len(said) == len(edit.insert) else "\n\n".join(map(readable, fresh))
    return text[:TEXT]


def _said(view: View, edit: Edit) -> str:
    return "\n\n".join(map(readable, view.transcript.messages[edit.start : edit.stop]))[:TEXT]


def _added(fresh: Iterable[Message], said: Iterable[Message]) -> str:
    """The lines of *fresh* that do not stand in *said*."""
    old = {line for message in said for line in readable(message).splitlines()}
    return "\n".join(line for message in fresh for line in readable(message).splitlines() if line not in old)


def row(one: Row) -> Json:
    """A line of the ledger."""
    return asdict(one)


def attempt(one: Attempt) -> Json:
    """How a strategy's run ended."""
    names = ("by", "outcome", "reason", "before", "after", "edits", "calls", "cost", "model")
    return {name: getattr(one, name) for name in names}


def vanished(gone: Vanished, *, words: bool) -> Json:
    """How much would vanish, and which *words*, for who has sent them."""
    found = {name: getattr(gone, name) for name in ("requests", "constraints", "paths", "identifiers")}
    return {name: {"count": len(those), "names": list(those[:NAMES]) if words else []} for name, those in found.items()}
