"""Trajectories of mini-swe-agent (`*.traj.json`) and SWE-agent (`*.traj`)."""

from collections.abc import Sequence

from refold.session_files.json_fields import (
    Record,
    int_at,
    list_at,
    object_at,
    objects_at,
    parse_time,
    text_at,
)
from refold.session_files.session import Entry, Problem, Session, SessionBuilder
from refold.session_files.source import Reader, Source, StoredSession

CLIENT = "mini_swe"
ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
SENT_FIELDS = (
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "name",
    "reasoning_content",
    "thinking_blocks",
)
"""The fields of a message that are sent; the rest is the agent's book-keeping."""


def mismatch(source: Source) -> str:
    """Return why this is no trajectory; empty if it is one."""
    document = source.document
    if (
        text_at(document, "trajectory_format").startswith("mini-swe-agent")
        and "messages" in document
    ):
        return ""
    if isinstance(object_at(document).get("history"), list) and any(
        "role" in message for message in objects_at(document, "history")
    ):
        return ""
    return "no trajectory_format mini-swe-agent, and no history of messages"


def sessions(source: Source) -> Sequence[StoredSession]:
    """Return the one session of a file."""
    swe = "history" in source.document and "trajectory_format" not in source.document
    return [StoredSession("", lambda: _read_swe_agent(source) if swe else _read_mini_swe(source))]


def _read_mini_swe(source: Source) -> Session:
    document, stamps = source.document, list[int]()
    session = SessionBuilder(problems=list(source.notes))
    for at, message in enumerate(objects_at(document, "messages"), 1):
        role, response = text_at(message, "role"), object_at(message, "extra", "response")
        if role in ROLES:
            session.messages.append(_strip_bookkeeping(message))
            stamps.append(int_at(response, "created"))
            if int_at(response, "usage", "prompt_tokens") >= 0:
                session.add_usage(object_at(response, "usage"))
        elif role != "exit":  # version 2 ends with one, and may hold Responses objects
            session.problems.append(Problem(0, f"message {at} has no role that is sent"))
    session.model = text_at(document, "info", "config", "model", "model_name")
    stamps = [stamp for stamp in stamps if stamp > 0]
    return session.build(
        source.path,
        "mini_swe",
        "openai_chat",
        id=text_at(document, "instance_id"),
        cwd=text_at(document, "info", "config", "environment", "cwd"),
        started=parse_time(stamps[0]) if stamps else None,
        updated=parse_time(stamps[-1]) if stamps else None,
    )


def _read_swe_agent(source: Source) -> Session:
    history = [
        message
        for message in objects_at(source.document, "history")
        if text_at(message, "role") in ROLES
    ]
    return Session(
        path=source.path,
        client="swe_agent",
        format="openai_chat",
        id=source.path.name.removesuffix(".traj"),
        messages=[_strip_bookkeeping(message) for message in history],
        body={},
        problems=source.notes,
    )


def _strip_bookkeeping(message: Record) -> Entry:
    """A message without book-keeping. SWE-agent keeps a result's call id in a list of one."""
    wire = {
        key: message[key]
        for key in SENT_FIELDS
        if key in message and not (key == "tool_calls" and not message[key])
    }
    ids = [id for id in list_at(message, "tool_call_ids") if isinstance(id, str)]
    if wire.get("role") == "tool" and ids and "tool_call_id" not in wire:
        wire["tool_call_id"] = ids[0]
    return wire


READER = Reader(CLIENT, mismatch, sessions)
