"""Results of tau-bench (a list of runs) and tau2-bench (one file of simulations).

The conversation is the agent's: in tau2-bench the simulated user may have tools of its own, which
the agent never saw. tau2-bench keeps the agent's policy apart; it becomes the system message.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial

from refold.session_files.reader import Entry, Reader, Session, SessionBuilder, StoredSession
from refold.session_files.source import Source
from refold.text.json_values import (
    Record,
    dig,
    int_at,
    object_at,
    objects_at,
    objects_in,
    text_at,
)

CLIENT = "tau"


def mismatch(source: Source) -> str:
    """Return why this is no result file; empty if it is one."""
    document = source.document
    if any(_is_run(run) for run in objects_in(document)):
        return ""
    if any("messages" in run for run in objects_at(document, "simulations")):
        return ""
    return "no list of runs with a traj, and no simulations with messages"


def sessions(source: Source) -> Sequence[StoredSession]:
    """Return a session for each run, in the order of the file; named by task and trial."""
    if isinstance(source.document, list):
        runs = [run for run in objects_in(source.document) if _is_run(run)]
        return [StoredSession(_run_id(run), partial(_read_tau, source, run)) for run in runs]
    info = object_at(source.document, "info")
    runs = list(objects_at(source.document, "simulations"))
    return [StoredSession(_run_id(run), partial(_read_tau2, source, run, info)) for run in runs]


def _is_run(run: Record) -> bool:
    return isinstance(run.get("traj"), list)


def _run_id(run: Record) -> str:
    return f"{run.get('task_id')}.{run.get('trial')}"


def _read_tau(source: Source, run: Record) -> Session:
    session = SessionBuilder(source, "tau", "openai_chat", _run_id(run))
    session.messages += objects_at(run, "traj")
    session.title = text_at(run, "info", "task", "instruction")
    return session.build()


def _read_tau2(source: Source, run: Record, info: Record) -> Session:
    session = SessionBuilder(source, "tau2", "openai_chat", _run_id(run))
    session.model = text_at(info, "agent_info", "llm")
    session.note_time(run.get("start_time"))
    session.note_time(run.get("end_time"))
    if policy := text_at(info, "environment_info", "policy"):
        session.add({"role": "system", "content": policy})
    for message in _flatten(objects_at(run, "messages")):
        session.messages += _entries(message)
        if message.get("role") == "assistant" and int_at(message, "usage", "prompt_tokens") >= 0:
            session.add_usage(object_at(message, "usage"))
    return session.build()


def _flatten(messages: Iterator[Record]) -> Iterator[Record]:
    """Yield several results in one message one by one."""
    for message in messages:
        yield from objects_at(message, "tool_messages") if "tool_messages" in message else [message]


def _entries(message: Record) -> list[Entry]:
    """Return a message as the agent's provider takes it; none for the user's own tools."""
    content, role = message.get("content"), text_at(message, "role")
    if role == "tool" and message.get("requestor") != "user":
        return [{"role": "tool", "tool_call_id": text_at(message, "id"), "content": content or ""}]
    if role == "assistant":
        calls = [_call(call) for call in objects_at(message, "tool_calls")]
        return [{"role": role, "content": content, **({"tool_calls": calls} if calls else {})}]
    return [{"role": role, "content": content}] if role in {"user", "system"} and content else []


def _call(call: Record) -> Entry:
    arguments = dig(call, "arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    return {
        "id": text_at(call, "id"),
        "type": "function",
        "function": {"name": text_at(call, "name"), "arguments": arguments},
    }


READER = Reader(CLIENT, mismatch, sessions)
