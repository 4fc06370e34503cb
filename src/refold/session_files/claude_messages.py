"""Claude Code's lines as messages: what is spread over several lines becomes one again."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from refold.session_files.session import Compaction, Problem, Wire
from refold.session_files.shape import dig, mapping, mappings, sequence, text

CLEARED = "[Old tool result content cleared]"
"""What the client shows in place of a result that a microcompaction cleared."""

Record = Mapping[str, Any]


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
    """Whether a compaction is recorded here."""
    return record.get("type") == "system" and record.get("subtype") == "compact_boundary"


def is_summary(record: Record) -> bool:
    """Whether this user line is the summary that a compaction left."""
    return record.get("isCompactSummary") is True


def metadata(record: Record) -> Mapping[str, Any]:
    """What a boundary says of its compaction; the SDK spells the key in snake case."""
    return mapping(record, "compactMetadata") or mapping(record, "compact_metadata")


# --- what was said ---------------------------------------------------------------------------


@dataclass(slots=True)
class Said:
    """The conversation as it grows."""

    messages: list[Wire] = field(default_factory=list)
    compactions: list[Compaction] = field(default_factory=list)
    usage: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    model: str = ""
    index: dict[str, int] = field(default_factory=dict)
    """Position of the message that a line became part of."""
    answered: set[str] = field(default_factory=set)
    """Calls whose results have been placed."""


def say(nodes: Sequence[Node], path: Sequence[Node], problems: list[Problem]) -> Said:
    """The messages of the active branch *path*; *nodes* are all lines that there are, since calls made
    in parallel and their results hang on side branches.
    """
    said, parts, answers = Said(), _parts(nodes), _answers((*path, *nodes))
    for at, node in enumerate(path):
        record = node.record or {}
        if is_boundary(record):
            _compact(said, node, path[at + 1 :], problems)
        elif record.get("type") == "assistant":
            _assistant(said, parts.get(_message_id(record), ()), answers)
        elif not is_summary(record) and record.get("isVisibleInTranscriptOnly") is not True:
            _user(said, node)
        elif is_summary(record) and not (at and _is_cut(path[at - 1])):
            _compact(said, node, path[at:], problems)
    return said


def _is_cut(node: Node) -> bool:
    return is_boundary(node.record or {}) or is_summary(node.record or {})


def _message_id(record: Record) -> str:
    return text(record, "message", "id") or text(record, "uuid")


def _is_model(record: Record) -> bool:
    """Did the model say it? The client writes its own error notes as answers, too."""
    return (
        record.get("type") == "assistant"
        and record.get("isApiErrorMessage") is not True
        and text(record, "message", "model") != "<synthetic>"
    )


def _parts(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    """The lines of each of the model's messages, side branches included, in the order of the file."""
    found = dict[str, list[Node]]()
    for node in nodes:
        if node.record is not None and _is_model(node.record):
            found.setdefault(_message_id(node.record), []).append(node)
    return found


def _answers(nodes: Iterable[Node]) -> dict[str, tuple[Node, Wire]]:
    """Each call's result, and the line it is on; of several the first."""
    found = dict[str, tuple[Node, Wire]]()
    for node in nodes:
        for block in mappings(node.record, "message", "content"):
            if block.get("type") == "tool_result":
                found.setdefault(text(block, "tool_use_id"), (node, block))
    return found


def _assistant(said: Said, nodes: Iterable[Node], answers: Mapping[str, tuple[Node, Wire]]) -> None:
    """One message of the model, all its lines, then the results of its calls."""
    nodes = [node for node in nodes if node.uuid not in said.index]
    blocks = _blocks(nodes)
    if not blocks:
        return
    for node in nodes:
        said.index[node.uuid] = len(said.messages)
        said.model = text(node.record, "message", "model") or said.model
    said.messages.append({"role": "assistant", "content": blocks})
    if usage := mapping(nodes[-1].record, "message", "usage"):
        said.usage.append((len(said.messages), usage))
    calls = [text(block, "id") for block in blocks if text(block, "type") == "tool_use"]
    _results(said, [answers[call] for call in calls if call in answers and call not in said.answered])


def _blocks(nodes: Iterable[Node]) -> list[Wire]:
    """All blocks, a call that is on two lines taken once."""
    blocks, calls = list[Wire](), set[str]()
    for node in nodes:
        content = dig(node.record, "message", "content")
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else sequence(content):
            call = text(block, "id") if text(block, "type") == "tool_use" else ""
            if isinstance(block, dict) and not _is_blank(block) and not (call and call in calls):
                blocks.append(block)
                calls.add(call)
    return blocks


def _is_blank(block: Record) -> bool:
    """Text of nothing but white space, which the model may write and the API refuses (AN-5)."""
    return block.get("type") == "text" and not text(block, "text").strip()


def _results(said: Said, found: Sequence[tuple[Node, Wire]]) -> None:
    """Results of one message's calls as one message, with whatever else stood on their lines."""
    if not found:
        return
    blocks = [block for _, block in found]
    said.answered.update(text(block, "tool_use_id") for block in blocks)
    for node in {node.uuid: node for node, _ in found}.values():
        if node.uuid not in said.index:
            said.index[node.uuid] = len(said.messages)
            blocks += [block for block in _content(node.record or {}) if block.get("type") != "tool_result"]
    said.messages.append({"role": "user", "content": blocks})


def _content(record: Record) -> list[dict[str, Any]]:
    return [block for block in mappings(record, "message", "content") if not _is_blank(block)]


def _user(said: Said, node: Node) -> None:
    """What a user's line says beyond results already placed."""
    content = dig(node.record, "message", "content")
    if isinstance(content, list):
        content = [block for block in _content(node.record or {}) if not _is_placed(said, node, block)]
    if content and (isinstance(content, list) or (isinstance(content, str) and content.strip())):
        said.index.setdefault(node.uuid, len(said.messages))
        said.messages.append({"role": "user", "content": content})


def _is_placed(said: Said, node: Node, block: Record) -> bool:
    if block.get("type") == "tool_result":
        return text(block, "tool_use_id") in said.answered
    return node.uuid in said.index


# --- compactions -----------------------------------------------------------------------------


def _compact(said: Said, node: Node, after: Sequence[Node], problems: list[Problem]) -> None:
    """A boundary, and the summaries right after it."""
    summaries = [one.record or {} for one in takewhile(lambda one: is_summary(one.record or {}), after)]
    insert = [{"role": "user", "content": dig(record, "message", "content")} for record in summaries]
    insert = [entry for entry in insert if entry["content"] and isinstance(entry["content"], str | list)]
    if not insert:
        problems.append(Problem(node.line, "a compaction without a summary; passed over"))
        return
    meta = metadata(node.record or {})
    stop, kept = _kept(said, mapping(meta, "preservedSegment"))
    said.compactions.append(Compaction(0, stop, (*insert, *kept), text(meta, "trigger"), meta))


def _kept(said: Said, segment: Mapping[str, Any]) -> tuple[int, Sequence[Wire]]:
    """Where the summary ends, and messages before that which stayed: a tail is just not replaced."""
    now = len(said.messages)
    head, tail = said.index.get(text(segment, "headUuid")), said.index.get(text(segment, "tailUuid"))
    if head is None or tail is None or tail < head:
        return now, ()
    calls = {text(block, "id") for block in mappings(said.messages[tail], "content")}
    while tail + 1 < now and any(text(b, "tool_use_id") in calls for b in mappings(said.messages[tail + 1], "content")):
        tail += 1
    return (head, ()) if tail + 1 == now else (now, said.messages[head : tail + 1])


def microcompactions(records: Iterable[Record], messages: Sequence[Wire]) -> Iterator[Compaction]:
    """Results that the client cleared, message by message."""
    holders = {
        text(block, "tool_use_id"): at for at, entry in enumerate(messages) for block in mappings(entry, "content")
    }
    cleared = set[str]()
    for record in records:
        meta = mapping(record, "microcompactMetadata") or mapping(record, "compactMetadata") or record
        ids = {one for one in sequence(meta, "compactedToolIds") if isinstance(one, str)}
        cleared |= ids
        for at in sorted({holders[one] for one in ids if one in holders}):
            yield Compaction(at, at + 1, (_cleared(messages[at], cleared),), "microcompact", meta)


def _cleared(entry: Wire, ids: set[str]) -> Wire:
    return {
        **entry,
        "content": [
            {**block, "content": CLEARED} if text(block, "tool_use_id") in ids else block for block in entry["content"]
        ],
    }
