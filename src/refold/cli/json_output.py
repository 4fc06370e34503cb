"""What `--json` prints. The keys are part of the interface (docs/cli.md)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from refold.cli.compact_command import Accepted, Compacted
from refold.cli.editor import summaries
from refold.codecs.repair import Repaired
from refold.core.view import View
from refold.edits import Edit
from refold.retrieval import Hit
from refold.rules.rule import Violation
from refold.session_files import Found
from refold.session_files.edited_session import EditedSession, Share, savings_by_strategy, tokens_saved
from refold.stores.store import LedgerRow

Document = dict[str, Any]


def answer(sessions: Iterable[Document], skipped: Iterable[tuple[str, str]]) -> Document:
    """The whole answer: one entry a session, and the files that could not be read."""
    return {"sessions": list(sessions), "skipped": [{"path": path, "reason": why} for path, why in skipped]}


def session(work: EditedSession) -> Document:
    """Which session it is."""
    one = work.session
    return {
        "path": work.name,
        "client": one.client,
        "format": work.view.source.codec.NAME if work.view.source is not None else one.format,
        "id": one.id,
        "title": one.title,
        "cwd": one.cwd,
        "messages": len(work.view.transcript),
        "problems": [{"line": problem.line, "text": problem.text} for problem in one.problems],
    }


def edit(view: View, one: Edit) -> Document:
    """An edit, without what it shows."""
    return {"id": one.id, "start": one.start, "stop": one.stop, "by": one.by, "saved": tokens_saved(view, one)}


def share(one: Share) -> Document:
    """What one strategy did."""
    return asdict(one)


def stats(work: EditedSession, parts: Mapping[str, Any], effective: int | None) -> Document:
    """`refold stats`."""
    view = work.view
    compactions = [{"start": c.start, "stop": c.stop, "trigger": c.trigger} for c in work.session.compactions]
    return {
        **session(work),
        "tokens": {
            "said": view.tokens_unedited,
            "sent": view.tokens,
            "effective": effective,
            "fixed": view.profile.fixed_tokens,
        },
        **parts,
        "compactions": compactions,
        "edits": [share(one) for one in savings_by_strategy(view)],
    }


def compaction(one: Compacted) -> Document:
    """`refold compact`; what is asked for with `--preview` besides."""
    before, after = one.work.view, one.made.view
    document = {
        **session(one.work),
        "tokens": {"said": before.tokens_unedited, "before": before.tokens, "after": after.tokens, "target": one.to},
        "fits": after.tokens <= one.to,
        "strategies": [share(done) for done in one.shares],
        "edits": [edit(after, made) for made in one.made.edits],
        "store": one.kept,
        "calls": one.made.calls,
        "cost": one.made.cost,
    }
    return document | ({} if one.draft is None else {"preview": _preview(one)})


def _preview(one: Compacted) -> Document:
    return {
        "draft": one.draft,
        "price": {"before": one.prices[0], "after": one.prices[1]} if one.prices else None,
        "summaries": [{"edit": id, "text": text} for id, text in summaries(one.made).items()],
        "vanished": {kind: list(texts) for kind, texts in asdict(one.made.losses).items()},
    }


def accepted(one: Accepted, actor: str) -> Document:
    """`refold accept`."""
    view = one.after.view
    return {
        **session(one.work),
        "tokens": {"before": one.work.view.tokens, "after": view.tokens},
        "edits": [edit(view, made) for made in one.edits],
        "store": one.kept,
        "grown": one.grown,
        "actor": actor,
    }


def discarded(work: EditedSession, found: bool) -> Document:
    """`refold discard`."""
    return {**session(work), "discarded": found}


def history(work: EditedSession, rows: Iterable[LedgerRow]) -> Document:
    """`refold history`: the ledger's rows, all of their fields."""
    return {**session(work), "rows": [asdict(row) for row in rows]}


def recalled(work: EditedSession, hits: Sequence[Hit], limit: int) -> Document:
    """`refold recall`."""
    return {**session(work), "hits": [hit._asdict() for hit in hits[:limit]], "more": len(hits) > limit}


def view(work: EditedSession) -> Document:
    """`refold view`."""
    return {
        **session(work),
        "tokens": work.view.tokens,
        "items": [
            {
                "start": item.start,
                "stop": item.stop,
                "edit": edit(work.view, item.edit) if item.edit else None,
                "tokens": item.tokens,
                "shown": [{"role": m.role, "parts": [_part(part) for part in m.parts]} for m in item.messages],
            }
            for item in work.view.iter_items()
        ],
    }


def unfolded(work: EditedSession, id: str) -> Document:
    """`refold unfold`: the entries in their wire form."""
    return {**session(work), "edit": edit(work.view, work.view.find(id)), "entries": work.view.unfold(id)}


def reverted(work: EditedSession, gone: Sequence[Edit], after: EditedSession) -> Document:
    """`refold revert`."""
    tokens = {"before": work.view.tokens, "after": after.view.tokens}
    return {**session(work), "tokens": tokens, "reverted": [edit(work.view, one) for one in gone]}


def checked(work: EditedSession, found: Sequence[Violation], repaired: Repaired | None) -> Document:
    """`refold check`."""
    document = {**session(work), "violations": [violation(one) for one in found]}
    if repaired is not None:
        document["repairs"] = [asdict(one) for one in repaired.repairs]
        document["left"] = [violation(one) for one in repaired.left]
    return document


def violation(one: Violation) -> Document:
    """One thing that a provider refuses, with the reason why a repair left it, if one did."""
    return {key: value for key, value in asdict(one).items() if key != "unmended" or value}


def found(one: Found) -> Document:
    """A session on this machine."""
    return {
        "client": one.client,
        "path": str(one.path),
        "id": one.id,
        "title": one.title,
        "cwd": one.cwd,
        "size_bytes": one.size_bytes,
        "modified": one.modified.isoformat(),
    }


def _part(part: Any) -> Document:
    return {"type": type(part).__name__, **asdict(part)}
