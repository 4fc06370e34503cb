"""The output of `--json`. The keys are part of the interface (docs/cli.md)."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from refold.cli.compaction import Acceptance, CompactedSession, summaries
from refold.cli.sessions import SessionEntry, sum_listed
from refold.codecs.repair import RepairResult
from refold.compactor.late_edits import irreversible_thinking_edits
from refold.core.view import View
from refold.core.view_lines import savings_by_strategy, select_items, tokens_saved
from refold.edits import Edit
from refold.gateway.ledger.accounting import read_bill
from refold.messages import Message
from refold.retrieval import Hit
from refold.rules.rule import Violation
from refold.session_files.edited import EditedSession
from refold.session_files.export import Exported
from refold.session_files.source import short_id
from refold.stores.store import LedgerRow
from refold.text.json_values import JsonObject, Record


def session(edited: EditedSession) -> JsonObject:
    """Return the fields that identify a session."""
    session = edited.session
    return {
        "path": edited.name,
        "client": session.client,
        "format": edited.format,
        "id": session.id,
        "title": session.title,
        "cwd": session.cwd,
        "messages": len(edited.view.transcript),
        "problems": list(map(asdict, edited.problems)),
    }


def _edit(view: View, edit: Edit) -> JsonObject:
    """Return an edit without its inserted messages."""
    saved = tokens_saved(view, edit)
    return {"id": edit.id, "start": edit.start, "stop": edit.stop, "by": edit.by, "saved": saved}


def stats(edited: EditedSession, shares: Record, effective: int | None) -> JsonObject:
    """Return the answer of `refold stats` for one session."""
    view = edited.view
    compactions = [
        {"start": compaction.start, "stop": compaction.stop, "trigger": compaction.trigger}
        for compaction in edited.session.compactions
    ]
    bill, times = read_bill(edited.session), (edited.session.started, edited.session.updated)
    started, updated = (when.isoformat() if when else None for when in times)
    return {
        **session(edited),
        "model": view.profile.model,
        "started": started,
        "updated": updated,
        "tokens": {
            "unedited": view.tokens_unedited,
            "sent": view.tokens,
            "effective": effective,
            "fixed": view.profile.fixed_tokens,
        },
        "billed": {
            "calls": bill.calls,
            **bill.tokens._asdict(),
            "context": bill.context,
            "cost": bill.dollars,
            "by_client": bill.is_recorded,
        },
        **shares,
        "compactions": compactions,
        "edits": [saving._asdict() for saving in savings_by_strategy(view)],
    }


def compaction(result: CompactedSession) -> JsonObject:
    """Return the answer of `refold compact` for one session."""
    before, after = result.edited.view, result.preview.view
    document = {
        **session(result.edited),
        "tokens": {
            "unedited": before.tokens_unedited,
            "before": before.tokens,
            "after": after.tokens,
            "target": result.to,
        },
        "fits": result.fits,
        "strategies": [saving._asdict() for saving in result.savings],
        "edits": [_edit(after, edit) for edit in result.preview.edits],
        "store": result.file,
        "calls": result.preview.calls,
        "cost": result.preview.cost,
    }
    if result.draft is not None:
        document["preview"] = _preview(result)
    return {**document, **export(result.exported)} if result.exported else document


def _preview(result: CompactedSession) -> JsonObject:
    """Return the fields that `--preview` adds."""
    preview = result.preview
    return {
        "draft": result.draft,
        "price": result.prices,
        "summaries": [{"edit": id, "text": text} for id, text in summaries(preview).items()],
        "losses": {kind: list(texts) for kind, texts in preview.losses.by_kind().items()},
        "places": [loss._asdict() for loss in preview.losses.items if loss.at is not None],
    }


def export(exported: Exported) -> JsonObject:
    """Return the fields of a session that was exported to a new file."""
    return {
        "export": {
            "file": str(exported.path),
            "new_id": exported.id,
            "command": exported.command,
            "move_to": exported.move_to and str(exported.move_to),
        }
    }


def acceptance(result: Acceptance, actor: str) -> JsonObject:
    """Return the answer of `refold accept` for one session."""
    view = result.after.view
    return {
        **session(result.before),
        "tokens": {"before": result.before.view.tokens, "after": view.tokens},
        "edits": [_edit(view, edit) for edit in result.edits],
        "store": str(result.before.place or ""),
        "grown": result.grown,
        "actor": actor,
    }


def discard(edited: EditedSession, existed: bool) -> JsonObject:
    """Return the answer of `refold discard` for one session."""
    return {**session(edited), "discarded": existed}


def history(edited: EditedSession, rows: Iterable[LedgerRow]) -> JsonObject:
    """Return the answer of `refold history` for one session: all fields of its ledger rows."""
    return {**session(edited), "rows": [asdict(row) for row in rows]}


def hits(edited: EditedSession, hits: Sequence[Hit], limit: int) -> JsonObject:
    """Return the answer of `refold recall` for one session."""
    shown = [hit._asdict() for hit in hits[:limit]]
    return {**session(edited), "hits": shown, "has_more": len(hits) > limit}


def view(edited: EditedSession, only: int | None = None) -> JsonObject:
    """Return the answer of `refold view` for one session, or for the message at *only*."""
    items = [
        {
            "start": item.start,
            "stop": item.stop,
            "edit": _edit(edited.view, item.edit) if item.edit else None,
            "tokens": item.tokens,
            "shown": [_message(message) for message in item.messages],
        }
        for item in select_items(edited.view, only)
    ]
    return {**session(edited), "tokens": edited.view.tokens, "items": items}


def _message(message: Message) -> JsonObject:
    parts = [{"type": type(part).__name__, **asdict(part)} for part in message.parts]
    return {"role": message.role, "parts": parts}


def unfold(edited: EditedSession, edit: Edit) -> JsonObject:
    """Return the answer of `refold unfold`: the entries in their wire form."""
    entries = edited.view.unfold(edit.id)
    return {**session(edited), "edit": _edit(edited.view, edit), "entries": entries}


def revert(before: EditedSession, edits: Sequence[Edit], after: EditedSession) -> JsonObject:
    """Return the answer of `refold revert` for one session."""
    tokens = {"before": before.view.tokens, "after": after.view.tokens}
    reverted = [_edit(before.view, edit) for edit in edits]
    staying = [_edit(after.view, edit) for edit in irreversible_thinking_edits(after.view)]
    return {**session(before), "tokens": tokens, "reverted": reverted, "staying": staying}


def check(
    edited: EditedSession, violations: Sequence[Violation], repaired: RepairResult | None
) -> JsonObject:
    """Return the answer of `refold check` for one session."""
    document = {**session(edited), "violations": list(map(_violation, violations))}
    if repaired is not None:
        document["repairs"] = [asdict(repair) for repair in repaired.repairs]
        document["remaining"] = list(map(_violation, repaired.remaining))
    return document


def _violation(violation: Violation) -> JsonObject:
    """Return a violation, with the reason why it was not repaired if there is one."""
    fields = asdict(violation).items()
    return {key: value for key, value in fields if key != "unmended" or value}


def session_on_disk(listed: SessionEntry) -> JsonObject:
    """Return an entry of the list of sessions."""
    file = listed.file
    return {
        "client": file.client,
        "path": str(file.path),
        "id": file.id or short_id(file),
        "title": listed.title,
        "cwd": file.cwd,
        "size_bytes": file.size_bytes if file.size_bytes >= 0 else None,
        "modified": file.modified.isoformat(),
        "tokens": listed.tokens,
        "cost": listed.dollars,
    }


def project(cwd: str, rows: Sequence[SessionEntry]) -> JsonObject:
    """Return the totals of a project's sessions."""
    count, cost = sum_listed(rows)
    return {"project": cwd, "sessions": len(rows), "tokens": count, "cost": cost}
