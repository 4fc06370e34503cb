"""Results of tau-bench (a list of runs) and tau2-bench (one file of simulations).

The conversation is the agent's: in tau2-bench the simulated user may have tools of its own, which
the agent never saw. tau2-bench keeps the agent's policy apart; it becomes the system message.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from refold.session_files.json_fields import (
    Record,
    dig,
    int_at,
    object_at,
    objects_at,
    parse_time,
    text_at,
)
from refold.session_files.session import Entry, Session, SessionBuilder
from refold.session_files.source import Reader, Source, StoredSession

CLIENT = "tau"


def mismatch(source: Source) -> str:
    """Return why this is no result file; empty if it is one."""
    document = source.document
    if isinstance(document, list) and any(
        isinstance(run.get("traj"), list) for run in _objects(document)
    ):
        return ""
    if any("messages" in run for run in objects_at(document, "simulations")):
        return ""
    return "no list of runs with a traj, and no simulations with messages"


def _objects(document: Any) -> Iterator[Record]:
    return objects_at({"runs": document}, "runs")


def sessions(source: Source) -> Sequence[StoredSession]:
    """Return a session for each run, in the order of the file; named by task and trial."""
    if isinstance(source.document, list):
        runs = [run for run in _objects(source.document) if isinstance(run.get("traj"), list)]
        return [StoredSession(_run_id(run), partial(_read_tau, source, run)) for run in runs]
    info = object_at(source.document, "info")
    runs = list(objects_at(source.document, "simulations"))
    return [StoredSession(_run_id(run), partial(_read_tau2, source, run, info)) for run in runs]


def _run_id(run: Record) -> str:
    return f"{run.get('task_id')}.{run.get('trial')}"


def _read_tau(source: Source, run: Record) -> Session:
    return Session(
        path=source.path,
        client="tau",
        format="openai_chat",
        id=_run_id(run),
        messages=list(objects_at(run, "traj")),
        body={},
        problems=source.notes,
        title=text_at(run, "info", "task", "instruction"),
    )


def _read_tau2(source: Source, run: Record, info: Record) -> Session:
    session = SessionBuilder(problems=list(source.notes))
    if policy := text_at(info, "environment_info", "policy"):
        session.messages.append({"role": "system", "content": policy})
    for message in _flatten(objects_at(run, "messages")):
        session.messages += _entries(message)
        if message.get("role") == "assistant" and int_at(message, "usage", "prompt_tokens") >= 0:
            session.add_usage(object_at(message, "usage"))
    session.model = text_at(info, "agent_info", "llm")
    return session.build(
        source.path,
        "tau2",
        "openai_chat",
        id=_run_id(run),
        started=parse_time(run.get("start_time")),
        updated=parse_time(run.get("end_time")),
    )


def _flatten(messages: Iterator[Record]) -> Iterator[Record]:
    """Several results in one message, one by one."""
    for message in messages:
        yield from objects_at(message, "tool_messages") if "tool_messages" in message else [message]


def _entries(message: Record) -> list[Entry]:
    """A message as the agent's provider takes it; none for the user's own tools."""
    content, role = message.get("content"), text_at(message, "role")
    if role == "tool" and message.get("requestor") != "user":
        return [{"role": "tool", "tool_call_id": text_at(message, "id"), "content": content or ""}]
    if role == "assistant":
        calls = [_call(call) for call in objects_at(message, "tool_calls")]
        return [{"role": role, "content": content, **({"tool_calls": calls} if calls else {})}]
    return [{"role": role, "content": content}] if role in {"user", "system"} and content else []


def _call(call: Record) -> Entry:
    arguments = dig(call, "arguments")
    spelled = (
        arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    )
    return {
        "id": text_at(call, "id"),
        "type": "function",
        "function": {"name": text_at(call, "name"), "arguments": spelled},
    }


READER = Reader(CLIENT, mismatch, sessions)
