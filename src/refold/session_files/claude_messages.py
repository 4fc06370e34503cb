"""Claude Code's lines as messages: what is spread over several lines becomes one again."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from refold.session_files.json_fields import Record, dig, list_at, object_at, objects_at, text_at
from refold.session_files.session import Compaction, Entry, Problem

CLEARED_RESULT = "[Old tool result content cleared]"
"""What the client shows in place of a result that a microcompaction cleared."""


@dataclass(frozen=True, slots=True)
class Node:
    """A line that is part of the tree. Only what is shown to the model keeps its record."""

    line: int
    uuid: str
    parent: str
    previous: str
    """The line of the conversation that stands before it in the file."""
    record: Record | None


def is_boundary(record: Record) -> bool:
    """Does this line record a compaction?"""
    return record.get("type") == "system" and record.get("subtype") == "compact_boundary"


def is_summary(record: Record) -> bool:
    """Is this user line the summary of a compaction?"""
    return record.get("isCompactSummary") is True


def metadata(record: Record) -> Record:
    """Return what a boundary records of its compaction; the SDK spells the key in snake case."""
    return object_at(record, "compactMetadata") or object_at(record, "compact_metadata")


# --- what was said ---------------------------------------------------------------------------


@dataclass(slots=True)
class Conversation:
    """The conversation as it grows."""

    messages: list[Entry] = field(default_factory=list)
    compactions: list[Compaction] = field(default_factory=list)
    usage: list[tuple[int, Record]] = field(default_factory=list)
    model: str = ""
    index: dict[str, int] = field(default_factory=dict)
    """Position of the message that a line became part of."""
    placed_calls: set[str] = field(default_factory=set)
    """Calls whose results have been placed."""


def build_conversation(
    nodes: Sequence[Node], path: Sequence[Node], problems: list[Problem]
) -> Conversation:
    """Return the conversation of the active branch *path*.

    *nodes* are all lines of the file, since parallel calls and their results are on side branches.
    """
    conversation, parts, answers = (
        Conversation(),
        _answer_lines(nodes),
        _first_results((*path, *nodes)),
    )
    for at, node in enumerate(path):
        record = node.record or {}
        if is_boundary(record):
            _add_compaction(conversation, node, path[at + 1 :], problems)
        elif record.get("type") == "assistant":
            _add_answer(conversation, parts.get(_message_id(record), ()), answers)
        elif not is_summary(record) and record.get("isVisibleInTranscriptOnly") is not True:
            _add_user(conversation, node)
        elif is_summary(record) and not (at and _is_cut(path[at - 1])):
            _add_compaction(conversation, node, path[at:], problems)
    return conversation


def _is_cut(node: Node) -> bool:
    return is_boundary(node.record or {}) or is_summary(node.record or {})


def _message_id(record: Record) -> str:
    return text_at(record, "message", "id") or text_at(record, "uuid")


def _is_model(record: Record) -> bool:
    """Did the model say it? The client writes its own error notes as answers, too."""
    return (
        record.get("type") == "assistant"
        and record.get("isApiErrorMessage") is not True
        and text_at(record, "message", "model") != "<synthetic>"
    )


def _answer_lines(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    """The lines of each of the model's messages, side branches included, in the order of the file."""
    lines = dict[str, list[Node]]()
    for node in nodes:
        if node.record is not None and _is_model(node.record):
            lines.setdefault(_message_id(node.record), []).append(node)
    return lines


def _first_results(nodes: Iterable[Node]) -> dict[str, tuple[Node, Entry]]:
    """Each call's result, and the line it is on; of several the first."""
    results = dict[str, tuple[Node, Entry]]()
    for node in nodes:
        for block in objects_at(node.record, "message", "content"):
            if block.get("type") == "tool_result":
                results.setdefault(text_at(block, "tool_use_id"), (node, block))
    return results


def _add_answer(
    conversation: Conversation, nodes: Iterable[Node], answers: Mapping[str, tuple[Node, Entry]]
) -> None:
    """One message of the model, all its lines, then the results of its calls."""
    nodes = [node for node in nodes if node.uuid not in conversation.index]
    blocks = _blocks(nodes)
    if not blocks:
        return
    for node in nodes:
        conversation.index[node.uuid] = len(conversation.messages)
        conversation.model = text_at(node.record, "message", "model") or conversation.model
    conversation.messages.append({"role": "assistant", "content": blocks})
    if usage := object_at(nodes[-1].record, "message", "usage"):
        conversation.usage.append((len(conversation.messages), usage))
    calls = [text_at(block, "id") for block in blocks if text_at(block, "type") == "tool_use"]
    _add_results(
        conversation,
        [
            answers[call]
            for call in calls
            if call in answers and call not in conversation.placed_calls
        ],
    )


def _blocks(nodes: Iterable[Node]) -> list[Entry]:
    """All blocks, a call that is on two lines taken once."""
    blocks, calls = list[Entry](), set[str]()
    for node in nodes:
        content = dig(node.record, "message", "content")
        for block in (
            [{"type": "text", "text": content}] if isinstance(content, str) else list_at(content)
        ):
            call = text_at(block, "id") if text_at(block, "type") == "tool_use" else ""
            if isinstance(block, dict) and not _is_blank(block) and not (call and call in calls):
                blocks.append(block)
                calls.add(call)
    return blocks


def _is_blank(block: Record) -> bool:
    """Text of nothing but white space, which the model may write and the API refuses (AN-5)."""
    return block.get("type") == "text" and not text_at(block, "text").strip()


def _add_results(conversation: Conversation, results: Sequence[tuple[Node, Entry]]) -> None:
    """Results of one message's calls as one message, with whatever else stood on their lines."""
    if not results:
        return
    blocks = [block for _, block in results]
    conversation.placed_calls.update(text_at(block, "tool_use_id") for block in blocks)
    for node in {node.uuid: node for node, _ in results}.values():
        if node.uuid not in conversation.index:
            conversation.index[node.uuid] = len(conversation.messages)
            blocks += [
                block for block in _content(node.record or {}) if block.get("type") != "tool_result"
            ]
    conversation.messages.append({"role": "user", "content": blocks})


def _content(record: Record) -> list[dict[str, Any]]:
    return [block for block in objects_at(record, "message", "content") if not _is_blank(block)]


def _add_user(conversation: Conversation, node: Node) -> None:
    """What a user's line says beyond results already placed."""
    content = dig(node.record, "message", "content")
    if isinstance(content, list):
        content = [
            block
            for block in _content(node.record or {})
            if not _is_placed(conversation, node, block)
        ]
    if content and (isinstance(content, list) or (isinstance(content, str) and content.strip())):
        conversation.index.setdefault(node.uuid, len(conversation.messages))
        conversation.messages.append({"role": "user", "content": content})


def _is_placed(conversation: Conversation, node: Node, block: Record) -> bool:
    if block.get("type") == "tool_result":
        return text_at(block, "tool_use_id") in conversation.placed_calls
    return node.uuid in conversation.index


# --- compactions -----------------------------------------------------------------------------


def _add_compaction(
    conversation: Conversation, node: Node, after: Sequence[Node], problems: list[Problem]
) -> None:
    """A boundary, and the summaries right after it."""
    summaries = [
        line.record or {} for line in takewhile(lambda line: is_summary(line.record or {}), after)
    ]
    insert = [
        {"role": "user", "content": dig(record, "message", "content")} for record in summaries
    ]
    insert = [
        entry for entry in insert if entry["content"] and isinstance(entry["content"], str | list)
    ]
    if not insert:
        problems.append(Problem(node.line, "a compaction without a summary; passed over"))
        return
    meta = metadata(node.record or {})
    stop, tail = _find_tail(conversation, object_at(meta, "preservedSegment"))
    conversation.compactions.append(
        Compaction(0, stop, (*insert, *tail), text_at(meta, "trigger"), meta)
    )


def _find_tail(conversation: Conversation, segment: Record) -> tuple[int, Sequence[Entry]]:
    """Where the summary ends, and messages before that which stayed: a tail is just not replaced."""
    now = len(conversation.messages)
    head, tail = (
        conversation.index.get(text_at(segment, "headUuid")),
        conversation.index.get(text_at(segment, "tailUuid")),
    )
    if head is None or tail is None or tail < head:
        return now, ()
    calls = {text_at(block, "id") for block in objects_at(conversation.messages[tail], "content")}
    while tail + 1 < now and any(
        text_at(b, "tool_use_id") in calls
        for b in objects_at(conversation.messages[tail + 1], "content")
    ):
        tail += 1
    return (head, ()) if tail + 1 == now else (now, conversation.messages[head : tail + 1])


def microcompactions(records: Iterable[Record], messages: Sequence[Entry]) -> Iterator[Compaction]:
    """Yield the client's clearings of results, message by message."""
    holders = {
        text_at(block, "tool_use_id"): at
        for at, entry in enumerate(messages)
        for block in objects_at(entry, "content")
    }
    cleared = set[str]()
    for record in records:
        meta = (
            object_at(record, "microcompactMetadata")
            or object_at(record, "compactMetadata")
            or record
        )
        ids = {id for id in list_at(meta, "compactedToolIds") if isinstance(id, str)}
        cleared |= ids
        for at in sorted({holders[id] for id in ids if id in holders}):
            yield Compaction(
                at, at + 1, (_clear_results(messages[at], cleared),), "microcompact", meta
            )


def _clear_results(entry: Entry, ids: set[str]) -> Entry:
    return {
        **entry,
        "content": [
            {**block, "content": CLEARED_RESULT} if text_at(block, "tool_use_id") in ids else block
            for block in entry["content"]
        ],
    }
