"""Claude Code: `~/.claude/projects/<directory>/<session>.jsonl`.

A session is a tree of lines. One answer of the model is spread over several lines with one message
id, and calls made in parallel hang on side branches: both are put together again, results right
after the message that made the calls, as they were sent. A compaction cuts the tree; the bridge
over the cut (`logicalParentUuid`) leads to what was said before it.
"""

from dataclasses import dataclass, field

from refold.session_files.claude_messages import (
    add_messages,
    is_boundary,
    is_summary,
    metadata,
    microcompactions,
    put_back,
)
from refold.session_files.client_files import ClientFiles, cwd_under
from refold.session_files.reader import Node, Reader, Session, SessionBuilder, Tree, single
from refold.session_files.source import Source
from refold.text.json_values import Record, object_at, text_at
from refold.text.left_out import find_origin, read_left_out

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


# --- the lines -------------------------------------------------------------------------------


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


# --- the active branch -----------------------------------------------------------------------


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


READER = Reader(CLIENT, mismatch, single(read), FILES.find)
