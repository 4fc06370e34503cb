"""Claude Code: `~/.claude/projects/<directory>/<session>.jsonl`.

A session is a tree of lines. One answer of the model is spread over several lines with one message
id, and calls made in parallel hang on side branches: both are put together again, results right
after the message that made the calls, as they were sent. A compaction cuts the tree; the bridge
over the cut (`logicalParentUuid`) leads to what was said before it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from refold.session_files.reader import (
    Compaction,
    Entry,
    Node,
    Reader,
    Session,
    SessionBuilder,
    Tree,
    single,
)
from refold.session_files.source import ClientFiles, Problem, Source, cwd_under
from refold.text.json_values import JsonObject, Record, dig, list_at, object_at, objects_at, text_at
from refold.text.left_out import LeftOut, find_origin, read_left_out

# --- sessions -------------------------------------------------------------------------------------


CLIENT = "claude_code"
FILES = ClientFiles(
    CLIENT,
    (".claude", ".config/claude"),
    ("projects/*/*.jsonl",),
    cwd_under("cwd"),
    "CLAUDE_CONFIG_DIR",
)
TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}
"""Records that hold a title, and where; the best kind first."""
RECORDS = frozenset({"assistant", "attachment", "progress", "system", "user"})
"""Lines of the tree."""
SIGNS = frozenset({"sessionId", "leafUuid", "messageId", "parentUuid"})


@dataclass(slots=True)
class _Log:
    """The file, sorted out."""

    tree: Tree = field(default_factory=Tree)
    leaf: str = ""
    """The leaf that the client named after the latest line of the conversation."""
    microcompactions: list[Record] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    """The latest title of each kind, and ids."""
    origins: dict[str, None] = field(default_factory=dict)
    """Sessions that this was forked from, in order."""


def mismatch(source: Source) -> str:
    """Return why this is no Claude Code session; empty if it is one."""
    for record in source.objects():
        if (
            not record.keys().isdisjoint(SIGNS)
            and text_at(record, "type")
            and "parts" not in object_at(record, "message")
        ):
            return "" if "systemPayload" not in record else "it has Qwen's systemPayload"
    return "no line has a type and one of " + ", ".join(sorted(SIGNS))


def read(source: Source) -> Session:
    """Read a session."""
    session, log = SessionBuilder(source, CLIENT, "anthropic"), _Log()
    side, notes = _is_subagent(source), list[str]()
    for line, record in session.records():
        _note_facts(session, log, record)
        uuid = text_at(record, "uuid")
        if uuid and uuid not in log.tree.nodes and (record.get("isSidechain") is True) is side:
            _add_node(log, line, uuid, record)
            if text_at(object_at(record, "message"), "role") and not _is_message(record):
                session.unknown[text_at(record, "type")] += 1
            elif text_at(record, "type") not in RECORDS:
                notes.append(text_at(record, "type"))
    add_messages(session, tuple(log.tree.nodes.values()), _active_nodes(log, session))
    if not session.messages:  # the client often has new kinds of notes beside what was said
        session.unknown.update(notes)
    session.compactions += microcompactions(log.microcompactions, session.messages)
    put_back(session, read_left_out(str(source.path), log.origins))
    session.id = (log.facts.get("agentId") if side else None) or log.facts.get("sessionId", "")
    session.title = next((log.facts[kind] for kind in TITLES if kind in log.facts), "")
    session.cwd = log.facts.get("cwd", "")
    return session.build()


# --- the lines of a file --------------------------------------------------------------------------


def _is_subagent(source: Source) -> bool:
    flags = [
        record.get("isSidechain") is True for record in source.objects() if _is_message(record)
    ]
    return bool(flags) and all(flags)


def _is_message(record: Record) -> bool:
    return text_at(record, "type") in {"user", "assistant"}


def _note_facts(session: SessionBuilder, log: _Log, record: Record) -> None:
    """Keep what a line says about the session."""
    kind = text_at(record, "type")
    if kind in TITLES and (title := text_at(record, TITLES[kind])):
        log.facts[kind] = title
    if kind == "last-prompt":
        log.leaf = text_at(record, "leafUuid")
    for key in ("sessionId", "agentId", "cwd"):
        if value := text_at(record, key):
            log.facts[key] = value
    if origin := find_origin(record):
        log.origins[origin] = None
    session.note_time(record.get("timestamp"))


def _add_node(log: _Log, line: int, uuid: str, record: Record) -> None:
    is_part = _is_message(record) or is_boundary(record)
    bridge = is_boundary(record) or is_summary(record)
    parent = (
        text_at(record, "parentUuid")
        or text_at(record, "logicalParentUuid")
        or (log.tree.last if bridge else "")
    )
    log.tree.add(line, uuid, parent, record if is_part else None)
    if is_part:
        log.leaf = ""
    if record.get("subtype") == "microcompact_boundary":
        log.microcompactions.append(record)


# --- the active branch ----------------------------------------------------------------------------


def _active_nodes(log: _Log, session: SessionBuilder) -> list[Node]:
    """Return what was said on the active branch, in order."""
    tree, leaf = log.tree, log.leaf
    if leaf not in tree.nodes or any(node.id == leaf for node in tree.branch(tree.last)):
        leaf = tree.last
    path = [node for node in session.branch(tree, leaf) if node.record is not None]
    return _insert_cuts(tree, path)


def _insert_cuts(tree: Tree, path: list[Node]) -> list[Node]:
    """Return *path* with the compactions that it walks around.

    The line after a compaction which kept a tail of messages may hang on that tail.
    """
    ids = {node.id for node in path}
    tails = dict[str, list[Node]]()
    for node in tree.nodes.values():
        tail = text_at(metadata(node.record or {}), "preservedSegment", "tailUuid")
        if node.id not in ids and tail in ids:
            summaries = [
                line
                for line in tree.nodes.values()
                if line.parent == node.id and is_summary(line.record or {})
            ]
            tails.setdefault(tail, []).extend([node, *summaries])
    return [line for node in path for line in (node, *tails.get(node.id, ()))]


# --- lines of compactions -------------------------------------------------------------------------


def is_boundary(record: Record) -> bool:
    """Does this line record a compaction?"""
    return record.get("type") == "system" and record.get("subtype") == "compact_boundary"


def is_summary(record: Record) -> bool:
    """Is this user line the summary of a compaction?"""
    return record.get("isCompactSummary") is True


def metadata(record: Record) -> Record:
    """Return what a boundary records of its compaction; the SDK spells the key in snake case."""
    return object_at(record, "compactMetadata") or object_at(record, "compact_metadata")


# --- Anthropic's blocks ---------------------------------------------------------------------------
# Several clients write in them.


def text_block(text: str) -> JsonObject:
    """Return a block of text."""
    return {"type": "text", "text": text}


def result_block(id: str, content: Any, *, is_error: bool = False) -> JsonObject:
    """Return the result of the call *id*."""
    block = {"type": "tool_result", "tool_use_id": id, "content": content}
    return {**block, "is_error": True} if is_error else block


def as_blocks(content: Any) -> list[Any]:
    """Return a content as blocks; a text is one."""
    if isinstance(content, str):
        return [text_block(content)]
    return [*content] if isinstance(content, list) else []


# --- messages -------------------------------------------------------------------------------------


Results = dict[str, tuple[Node, Entry]]
"""Results that have no place yet, each with the node that it is on, by the id of its call."""


def add_messages(session: SessionBuilder, nodes: Sequence[Node], path: Sequence[Node]) -> None:
    """Add the messages and compactions of the active branch *path*.

    *nodes* are all lines of the file, since parallel calls and their results are on side branches.
    """
    answers, results = _answer_lines(nodes), _first_results((*path, *nodes))
    for at, node in enumerate(path):
        record = node.record or {}
        if is_boundary(record):
            _add_compaction(session, node, path[at + 1 :])
        elif record.get("type") == "assistant":
            _add_answer(session, answers.get(_message_id(record), ()), results)
        elif not is_summary(record) and record.get("isVisibleInTranscriptOnly") is not True:
            _add_user(session, node, results)
        elif is_summary(record) and not (at and _is_cut(path[at - 1])):
            _add_compaction(session, node, path[at:])


def _is_cut(node: Node) -> bool:
    return is_boundary(node.record or {}) or is_summary(node.record or {})


def _message_id(record: Record) -> str:
    return text_at(record, "message", "id") or text_at(record, "uuid")


def _is_model(record: Record) -> bool:
    """Is it by the model? The client writes its own error notes as answers, too."""
    return (
        record.get("type") == "assistant"
        and record.get("isApiErrorMessage") is not True
        and text_at(record, "message", "model") != "<synthetic>"
    )


def _answer_lines(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    """Return the lines of each of the model's messages, side branches included, in order."""
    lines = dict[str, list[Node]]()
    for node in nodes:
        if node.record is not None and _is_model(node.record):
            lines.setdefault(_message_id(node.record), []).append(node)
    return lines


def _first_results(nodes: Iterable[Node]) -> Results:
    """Return each call's result; of several the first."""
    results = Results()
    for node in nodes:
        for block in objects_at(node.record, "message", "content"):
            if block.get("type") == "tool_result":
                results.setdefault(text_at(block, "tool_use_id"), (node, block))
    return results


def _add_answer(session: SessionBuilder, nodes: Iterable[Node], results: Results) -> None:
    """Add one message of the model, all its lines, then the results of its calls."""
    nodes = [node for node in nodes if node.id not in session.index]
    blocks = _blocks(nodes)
    if not blocks:
        return
    for node in nodes:
        session.index[node.id] = len(session.messages)
        session.model = text_at(node.record, "message", "model") or session.model
    session.messages.append({"role": "assistant", "content": blocks})
    if usage := object_at(nodes[-1].record, "message", "usage"):
        session.add_usage(usage)
    calls = [text_at(block, "id") for block in blocks if text_at(block, "type") == "tool_use"]
    _add_results(session, [results.pop(call) for call in calls if call in results])


def _blocks(nodes: Iterable[Node]) -> list[Entry]:
    """Return all blocks, a call that is on two lines once."""
    blocks, calls = list[Entry](), set[str]()
    for node in nodes:
        for block in as_blocks(dig(node.record, "message", "content")):
            call = text_at(block, "id") if text_at(block, "type") == "tool_use" else ""
            if isinstance(block, dict) and not _is_blank(block) and not (call and call in calls):
                blocks.append(block)
                calls.add(call)
    return blocks


def _is_blank(block: Record) -> bool:
    """Is it a text of white space, which the model may write and the API refuses (AN-5)?"""
    return block.get("type") == "text" and not text_at(block, "text").strip()


def _add_results(session: SessionBuilder, results: Sequence[tuple[Node, Entry]]) -> None:
    """Add results of one message's calls as one message, with what else is on their lines."""
    if not results:
        return
    blocks = [block for _, block in results]
    for node in {node.id: node for node, _ in results}.values():
        if node.id not in session.index:
            session.index[node.id] = len(session.messages)
            blocks += [block for block in _content(node) if block.get("type") != "tool_result"]
    session.messages.append({"role": "user", "content": blocks})


def _content(node: Node) -> list[JsonObject]:
    blocks = objects_at(node.record, "message", "content")
    return [block for block in blocks if not _is_blank(block)]


def _add_user(session: SessionBuilder, node: Node, results: Results) -> None:
    """Add what a user's line says beyond results that have their place."""
    content = dig(node.record, "message", "content")
    if isinstance(content, list):
        is_placed = node.id in session.index
        content = [
            block
            for block in _content(node)
            if (
                text_at(block, "tool_use_id") in results
                if block.get("type") == "tool_result"
                else not is_placed
            )
        ]
    if content and (isinstance(content, list) or (isinstance(content, str) and content.strip())):
        session.index.setdefault(node.id, len(session.messages))
        session.messages.append({"role": "user", "content": content})


# --- compactions ----------------------------------------------------------------------------------


CLEARED_RESULT = "[Old tool result content cleared]"
"""What the client shows in place of a result that a microcompaction cleared."""


def _add_compaction(session: SessionBuilder, node: Node, after: Sequence[Node]) -> None:
    """Add a boundary, and the summaries right after it."""
    summaries = takewhile(lambda line: is_summary(line.record or {}), after)
    contents = [dig(line.record, "message", "content") for line in summaries]
    insert = [
        {"role": "user", "content": content}
        for content in contents
        if content and isinstance(content, str | list)
    ]
    if not insert:
        problem = Problem(node.line, "a compaction without a summary; passed over")
        session.problems.append(problem)
        return
    meta = metadata(node.record or {})
    stop, tail = _find_tail(session, object_at(meta, "preservedSegment"))
    now, trigger = len(session.messages), text_at(meta, "trigger")
    session.compactions.append(Compaction(0, stop, (*insert, *tail), trigger, meta, now))


def _find_tail(session: SessionBuilder, segment: Record) -> tuple[int, Sequence[Entry]]:
    """Return where the summary ends, and messages before that which stayed.

    A tail at the end of the conversation is just not replaced.
    """
    now = len(session.messages)
    head = session.index.get(text_at(segment, "headUuid"))
    tail = session.index.get(text_at(segment, "tailUuid"))
    if head is None or tail is None or tail < head:
        return now, ()
    calls = {text_at(block, "id") for block in objects_at(session.messages[tail], "content")}
    while tail + 1 < now and any(
        text_at(block, "tool_use_id") in calls
        for block in objects_at(session.messages[tail + 1], "content")
    ):
        tail += 1
    return (head, ()) if tail + 1 == now else (now, session.messages[head : tail + 1])


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


# --- results that `refold hook` shortened ---------------------------------------------------------


def put_back(session: SessionBuilder, left_out: Mapping[str, Sequence[LeftOut]]) -> None:
    """Put back into results what was left out of them; what the model saw is noted."""
    for at, entry in enumerate(session.messages) if left_out else ():
        blocks = list_at(entry.get("content"))
        whole = [
            _put_back(block, left_out.get(text_at(block, "tool_use_id"), ())) for block in blocks
        ]
        if whole != blocks:
            session.messages[at] = {**entry, "content": whole}
            session.first_sight.append(Compaction(at, at + 1, (entry,), "hook"))


def _put_back(block: Any, rows: Sequence[LeftOut]) -> Any:
    if not rows or text_at(block, "type") != "tool_result":
        return block
    content = block.get("content")
    if isinstance(content, str):
        return {**block, "content": _restore(content, rows)}
    parts = [
        {**part, "text": _restore(part["text"], rows)}
        if isinstance(part.get("text"), str)
        else part
        for part in objects_at(block, "content")
    ]
    return {**block, "content": parts}


def _restore(text: str, rows: Sequence[LeftOut]) -> str:
    """Return what a text was, whether the client numbered its lines or not."""
    for row in rows:
        shown, whole = (_number(lines, row.line) for lines in (row.shown, row.text))
        if not row.line or shown not in text:
            shown, whole = row.shown, row.text
        text = text.replace(shown, whole, 1)
    return text


def _number(text: str, first: int) -> str:
    return "\n".join(f"{number}\t{line}" for number, line in enumerate(text.split("\n"), first))


READER = Reader(CLIENT, mismatch, single(read), FILES.find)
