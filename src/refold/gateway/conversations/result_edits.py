"""Edits of single calls and results, kept by the ids and contents of these.

If a client rewrites the beginning of its history, the edits of that history are not found again.
But what an edit showed for one result holds wherever that result stands: it is shown again, byte
for byte, and never grows again. Such decisions are stored as edits under separate tips, so that any
store keeps them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from refold.compactor.late_edits import drop_invalidated_thinking
from refold.core.view import View
from refold.edits import Edit
from refold.gateway.conversations.conversations import hash_parts
from refold.messages import Message, Part, ToolCall, ToolResult
from refold.transcript import hash_message

BY = "decided"
"""What the name of a re-made edit's maker begins with."""

Identified = ToolCall | ToolResult


def find_result_edits(tenant: str, view: View, edits: Iterable[Edit]) -> list[Edit]:
    """Return the decisions in those of *edits* that show one message with other contents, for the
    store."""
    single = (edit for edit in edits if edit.stop == edit.start + 1)
    return [decision for edit in single for decision in _decisions(tenant, view, edit)]


def result_tips(tenant: str, messages: Sequence[Message]) -> list[str]:
    """Return the tips under which decisions about *messages* are stored."""
    parts = (part for message in messages for part in message.parts)
    return [_result_tip(tenant, part) for part in parts if _has_id(part)]


def make_result_edits(tenant: str, view: View, decisions: Sequence[Edit]) -> list[Edit]:
    """Return edits of *view* that show again what was decided, and those that drop thinking they
    invalidate."""
    by_tip = {
        decision.tip: decision
        for decision in decisions
        if len(decision.insert) == 1 and len(decision.insert[0].parts) == 1
    }
    after = view.apply_valid(_remake(tenant, view, by_tip))
    return list(drop_invalidated_thinking(after, view).edits[len(view.edits) :])


def _remake(tenant: str, view: View, by_tip: Mapping[str, Edit]) -> Iterator[Edit]:
    covered = {
        at for placed in view.visible_edits for at in range(placed.edit.start, placed.edit.stop)
    }
    for at, message in enumerate(view.transcript.messages):
        if at in covered:
            continue
        matches = {
            index: decision
            for index, part in enumerate(message.parts)
            if _has_id(part) and (decision := by_tip.get(_result_tip(tenant, part)))
        }
        if matches:
            parts = tuple(
                matches[index].insert[0].parts[0] if index in matches else part
                for index, part in enumerate(message.parts)
            )
            by = next(iter(matches.values())).by
            by = by if by.startswith(BY) else f"{BY} ({by})"
            yield view.replace(at, replace(message, parts=parts), by=by)


def _decisions(tenant: str, view: View, edit: Edit) -> Iterator[Edit]:
    message = view.transcript.messages[edit.start]
    if len(edit.insert) != 1 or len(edit.insert[0].parts) != len(message.parts):
        return
    for old, new in zip(message.parts, edit.insert[0].parts, strict=True):
        if _has_id(old) and old != new and type(old) is type(new):
            yield Edit(0, 1, (Message(message.role, (new,)),), _result_tip(tenant, old), edit.by)


def _has_id(part: Part) -> bool:
    return isinstance(part, Identified) and bool(part.id)


def _result_tip(tenant: str, part: Part) -> str:
    return hash_parts("decision", tenant, hash_message(Message("tool", (part,))).hex())
