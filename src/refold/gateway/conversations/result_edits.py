"""What was decided about single calls and results, kept by their ids and contents.

Where a client rewrites the beginning of its history, the edits of that history are not found again.
But what an edit showed for one result holds for that result wherever it stands: so it is shown again,
byte for byte, and once shown short a result never grows again. Decisions are stored as edits under a tip of their own,
so that any store keeps them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from refold.compactor.signed_thinking import drop_invalidated_thinking
from refold.core.view import View
from refold.edits import Edit
from refold.gateway.conversations.identity import hash_parts
from refold.messages import Message, Part, ToolCall, ToolResult
from refold.transcript import hash_message

BY = "decided"
"""Begins the name of what re-made an edit from a decision."""

Identified = ToolCall | ToolResult


def extract(tenant: str, view: View, edits: Iterable[Edit]) -> list[Edit]:
    """The decisions in those of *edits* that show one message with other contents, for the store."""
    return [
        decision
        for edit in edits
        if edit.stop == edit.start + 1
        for decision in _extract_edit(tenant, view, edit)
    ]


def tips_of(tenant: str, messages: Sequence[Message]) -> list[str]:
    """The tips under which decisions about *messages* would be stored."""
    return [_tip(tenant, part) for message in messages for part in message.parts if _has_id(part)]


def reapply(tenant: str, view: View, found: Sequence[Edit]) -> list[Edit]:
    """Edits of *view* that show again what was decided, and those that take out signed thinking they unbind."""
    shown = {
        edit.tip: edit for edit in found if len(edit.insert) == 1 and len(edit.insert[0].parts) == 1
    }
    covered = {
        at for placed in view.visible_edits for at in range(placed.edit.start, placed.edit.stop)
    }
    after = view.apply_valid(_reapplied_edits(tenant, view, shown, covered))
    return list(drop_invalidated_thinking(after, view).edits[len(view.edits) :])


def _reapplied_edits(
    tenant: str, view: View, shown: Mapping[str, Edit], covered: set[int]
) -> Iterator[Edit]:
    for at, message in enumerate(view.transcript.messages):
        if at in covered:
            continue
        known = {
            place: shown.get(_tip(tenant, part))
            for place, part in enumerate(message.parts)
            if _has_id(part)
        }
        found = {place: edit for place, edit in known.items() if edit is not None}
        if found:
            parts = tuple(
                found[i].insert[0].parts[0] if i in found else part
                for i, part in enumerate(message.parts)
            )
            by = next(iter(found.values())).by
            yield view.replace(
                at, replace(message, parts=parts), by=by if by.startswith(BY) else f"{BY} ({by})"
            )


def _extract_edit(tenant: str, view: View, edit: Edit) -> Iterator[Edit]:
    said = view.transcript.messages[edit.start]
    if len(edit.insert) != 1 or len(edit.insert[0].parts) != len(said.parts):
        return
    for old, new in zip(said.parts, edit.insert[0].parts, strict=True):
        if _has_id(old) and old != new and type(old) is type(new):
            yield Edit(0, 1, (Message(said.role, (new,)),), _tip(tenant, old), edit.by)


def _has_id(part: Part) -> bool:
    return isinstance(part, Identified) and bool(part.id)


def _tip(tenant: str, part: Part) -> str:
    return hash_parts("decision", tenant, hash_message(Message("tool", (part,))).hex())
