"""Trajectories of mini-swe-agent (`*.traj.json`) and SWE-agent (`*.traj`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from refold.session_files.session import Problem, Session, Wire
from refold.session_files.shape import mapping, mappings, moment, number, sequence, text
from refold.session_files.source import Reader, Source, Stored

CLIENT = "mini_swe"
ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
SENT = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content", "thinking_blocks")
"""What of a message is sent; the rest is the agent's own book-keeping."""


def refuses(source: Source) -> str:
    """Why this is no trajectory; empty if it is one."""
    document = source.document
    if text(document, "trajectory_format").startswith("mini-swe-agent") and "messages" in document:
        return ""
    if isinstance(mapping(document).get("history"), list) and any(
        "role" in one for one in mappings(document, "history")
    ):
        return ""
    return "no trajectory_format mini-swe-agent, and no history of messages"


def sessions(source: Source) -> Sequence[Stored]:
    """The one session of a file."""
    swe = "history" in source.document and "trajectory_format" not in source.document
    return [Stored("", lambda: _swe_agent(source) if swe else _mini(source))]


def _mini(source: Source) -> Session:
    document, problems = source.document, list(source.notes)
    messages, usage, stamps = list[Wire](), list[tuple[int, Mapping[str, Any]]](), list[int]()
    for at, message in enumerate(mappings(document, "messages"), 1):
        if text(message, "role") not in ROLES:
            # Version 2 ends with an `exit` message of its own and may hold Responses objects.
            problems += [] if message.get("role") == "exit" else [Problem(0, f"message {at} has no role that is sent")]
            continue
        messages.append(_sent(message))
        stamps.append(number(message, "extra", "response", "created"))
        if number(message, "extra", "response", "usage", "prompt_tokens") >= 0:
            usage.append((len(messages), mapping(message, "extra", "response", "usage")))
    model = text(document, "info", "config", "model", "model_name")
    stamps = [stamp for stamp in stamps if stamp > 0]
    return Session(
        path=source.path,
        client="mini_swe",
        format="openai_chat",
        id=text(document, "instance_id"),
        messages=messages,
        body={"model": model} if model else {},
        usage=tuple(usage),
        problems=tuple(problems),
        cwd=text(document, "info", "config", "environment", "cwd"),
        started=moment(stamps[0]) if stamps else None,
        updated=moment(stamps[-1]) if stamps else None,
    )


def _swe_agent(source: Source) -> Session:
    history = [one for one in mappings(source.document, "history") if text(one, "role") in ROLES]
    return Session(
        path=source.path,
        client="swe_agent",
        format="openai_chat",
        id=source.path.name.removesuffix(".traj"),
        messages=[_sent(message) for message in history],
        body={},
        problems=source.notes,
    )


def _sent(message: Mapping[str, Any]) -> Wire:
    """A message without book-keeping. SWE-agent keeps a result's call id in a list of one."""
    wire = {key: message[key] for key in SENT if key in message and not (key == "tool_calls" and not message[key])}
    ids = [one for one in sequence(message, "tool_call_ids") if isinstance(one, str)]
    if wire.get("role") == "tool" and ids and "tool_call_id" not in wire:
        wire["tool_call_id"] = ids[0]
    return wire


READER = Reader(CLIENT, refuses, sessions)
