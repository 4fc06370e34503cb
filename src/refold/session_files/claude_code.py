"""Claude Code: `~/.claude/projects/<directory>/<session>.jsonl`.

A session is a tree of lines. One answer of the model is spread over several lines with one message
id, and calls made in parallel hang on side branches: both are put together again, results right
after the message that made the calls, as they were sent. A compaction cuts the tree; the bridge
over the cut (`logicalParentUuid`) leads to what was said before it.
"""

from dataclasses import dataclass, field

from refold.session_files.claude_messages import (
    Node,
    build_conversation,
    is_boundary,
    is_summary,
    metadata,
    microcompactions,
)
from refold.session_files.json_fields import Record, object_at, parse_time, text_at
from refold.session_files.session import Problem, Session, branch_to
from refold.session_files.source import Reader, Source, single

CLIENT = "claude_code"
TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}
"""Records that hold a title, and where; the best kind first."""
SIGNS = frozenset({"sessionId", "leafUuid", "messageId", "parentUuid"})


@dataclass(slots=True)
class _Log:
    """The file, sorted out."""

    nodes: dict[str, Node] = field(default_factory=dict)
    last: str = ""
    """The latest line of the conversation."""
    leaf: str = ""
    """The leaf that the client named after that line."""
    microcompactions: list[Record] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    stamps: list[str] = field(default_factory=list)


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
    problems = list[Problem]()
    side = _is_subagent(source)
    log = _load(source, side, problems)
    conversation = build_conversation(
        tuple(log.nodes.values()), _active_nodes(log, problems), problems
    )
    return Session(
        path=source.path,
        client=CLIENT,
        format="anthropic",
        id=(log.facts.get("agentId") if side else None) or log.facts.get("sessionId", ""),
        messages=conversation.messages,
        body={"model": conversation.model} if conversation.model else {},
        compactions=(
            *conversation.compactions,
            *microcompactions(log.microcompactions, conversation.messages),
        ),
        usage=tuple(conversation.usage),
        problems=tuple(problems),
        title=next((log.facts[kind] for kind in TITLES if kind in log.facts), ""),
        cwd=log.facts.get("cwd", ""),
        started=parse_time(min(log.stamps, default="")),
        updated=parse_time(max(log.stamps, default="")),
    )


# --- the lines -------------------------------------------------------------------------------


def _is_subagent(source: Source) -> bool:
    flags = [
        record.get("isSidechain") is True for record in source.objects() if _is_message(record)
    ]
    return bool(flags) and all(flags)


def _is_message(record: Record) -> bool:
    return text_at(record, "type") in {"user", "assistant"}


def _load(source: Source, side: bool, problems: list[Problem]) -> _Log:
    log = _Log()
    for line, record in source.records(problems):
        _note_facts(log, record)
        uuid = text_at(record, "uuid")
        if uuid and uuid not in log.nodes and (record.get("isSidechain") is True) is side:
            _add_node(log, line, uuid, record)
    return log


def _note_facts(log: _Log, record: Record) -> None:
    """Keep what a line says about the session."""
    kind = text_at(record, "type")
    if kind in TITLES and (title := text_at(record, TITLES[kind])):
        log.facts[kind] = title
    if kind == "last-prompt":
        log.leaf = text_at(record, "leafUuid")
    for key in ("sessionId", "agentId", "cwd"):
        if value := text_at(record, key):
            log.facts[key] = value
    if stamp := text_at(record, "timestamp"):
        log.stamps = [min([*log.stamps, stamp]), max([*log.stamps, stamp])]


def _add_node(log: _Log, line: int, uuid: str, record: Record) -> None:
    is_part = _is_message(record) or is_boundary(record)
    bridge = is_boundary(record) or is_summary(record)
    parent = (
        text_at(record, "parentUuid")
        or text_at(record, "logicalParentUuid")
        or (log.last if bridge else "")
    )
    log.nodes[uuid] = Node(line, uuid, parent, log.last, record if is_part else None)
    if is_part:
        log.last, log.leaf = uuid, ""
    if record.get("subtype") == "microcompact_boundary":
        log.microcompactions.append(record)


# --- the active branch -----------------------------------------------------------------------


def _active_nodes(log: _Log, problems: list[Problem]) -> list[Node]:
    """What was said on the active branch, in order."""
    parents = {uuid: _parent(log, node) for uuid, node in log.nodes.items()}
    before = {uuid: node.previous for uuid, node in log.nodes.items()}
    path = branch_to(log.last, parents, before)
    if log.leaf in log.nodes and log.leaf not in set(path):
        path = branch_to(log.leaf, parents, before)
    for above, uuid in zip(["", *path], path, strict=False):
        node = log.nodes[uuid]
        if parents[uuid] != above:
            problems.append(
                Problem(node.line, "its parents go in a circle; joined to the line before")
            )
        if node.parent and node.parent != parents[uuid] and parents[uuid]:
            problems.append(
                Problem(
                    node.line,
                    f"its parent {node.parent} is not in the file; joined to the line before",
                )
            )
    nodes = [log.nodes[uuid] for uuid in path if log.nodes[uuid].record is not None]
    return _insert_cuts(log, nodes)


def _parent(log: _Log, node: Node) -> str:
    """An unknown parent was on a broken line or in another file: go on with the line before."""
    return node.parent if node.parent in log.nodes or not node.parent else node.previous


def _insert_cuts(log: _Log, path: list[Node]) -> list[Node]:
    """*path*, with the compactions that it walks around: the line after a compaction which kept a
    tail of messages may hang on that tail.
    """
    uuids = {node.uuid for node in path}
    tails = dict[str, list[Node]]()
    for node in log.nodes.values():
        tail = text_at(metadata(node.record or {}), "preservedSegment", "tailUuid")
        if node.uuid not in uuids and tail in uuids:
            summaries = [
                line
                for line in log.nodes.values()
                if line.parent == node.uuid and is_summary(line.record or {})
            ]
            tails.setdefault(tail, []).extend([node, *summaries])
    return [line for node in path for line in (node, *tails.get(node.uuid, ()))]


READER = Reader(CLIENT, mismatch, single(read))
