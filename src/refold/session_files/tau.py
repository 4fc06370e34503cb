"""Results of tau-bench (a list of runs) and tau2-bench (one file of simulations).

The conversation is the agent's: in tau2-bench the simulated user may have tools of its own, which
the agent never saw. tau2-bench keeps the agent's policy apart; it becomes the system message.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from refold.session_files.session import Session, Wire
from refold.session_files.shape import dig, mapping, mappings, moment, number, text
from refold.session_files.source import Reader, Source, Stored

CLIENT = "tau"

Run = Mapping[str, Any]


def refuses(source: Source) -> str:
    """Why this is no result file; empty if it is one."""
    document = source.document
    if isinstance(document, list) and any(isinstance(run.get("traj"), list) for run in _objects(document)):
        return ""
    if any("messages" in run for run in mappings(document, "simulations")):
        return ""
    return "no list of runs with a traj, and no simulations with messages"


def _objects(document: Any) -> Iterator[Run]:
    return mappings({"runs": document}, "runs")


def sessions(source: Source) -> Sequence[Stored]:
    """One session for each run, in the order of the file; named by task and trial."""
    if isinstance(source.document, list):
        runs = [run for run in _objects(source.document) if isinstance(run.get("traj"), list)]
        return [Stored(_name(run), partial(_tau, source, run)) for run in runs]
    info = mapping(source.document, "info")
    runs = list(mappings(source.document, "simulations"))
    return [Stored(_name(run), partial(_tau2, source, run, info)) for run in runs]


def _name(run: Run) -> str:
    return f"{run.get('task_id')}.{run.get('trial')}"


def _tau(source: Source, run: Run) -> Session:
    return Session(
        path=source.path,
        client="tau",
        format="openai_chat",
        id=_name(run),
        messages=list(mappings(run, "traj")),
        body={},
        problems=source.notes,
        title=text(run, "info", "task", "instruction"),
    )


def _tau2(source: Source, run: Run, info: Mapping[str, Any]) -> Session:
    policy = text(info, "environment_info", "policy")
    messages = list[Wire]([{"role": "system", "content": policy}] if policy else [])
    usage = list[tuple[int, Mapping[str, Any]]]()
    for message in _flat(mappings(run, "messages")):
        messages += _wire(message)
        if message.get("role") == "assistant" and number(message, "usage", "prompt_tokens") >= 0:
            usage.append((len(messages), mapping(message, "usage")))
    model = text(info, "agent_info", "llm")
    return Session(
        path=source.path,
        client="tau2",
        format="openai_chat",
        id=_name(run),
        messages=messages,
        body={"model": model} if model else {},
        usage=tuple(usage),
        problems=source.notes,
        started=moment(run.get("start_time")),
        updated=moment(run.get("end_time")),
    )


def _flat(messages: Iterator[Run]) -> Iterator[Run]:
    """Several results in one message, one by one."""
    for message in messages:
        yield from mappings(message, "tool_messages") if "tool_messages" in message else [message]


def _wire(message: Run) -> list[Wire]:
    """A message as the agent's provider takes it; none for the user's own tools."""
    content, role = message.get("content"), text(message, "role")
    if role == "tool" and message.get("requestor") != "user":
        return [{"role": "tool", "tool_call_id": text(message, "id"), "content": content or ""}]
    if role == "assistant":
        calls = [_call(call) for call in mappings(message, "tool_calls")]
        return [{"role": role, "content": content, **({"tool_calls": calls} if calls else {})}]
    return [{"role": role, "content": content}] if role in {"user", "system"} and content else []


def _call(call: Mapping[str, Any]) -> Wire:
    arguments = dig(call, "arguments")
    spelled = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": text(call, "id"), "type": "function", "function": {"name": text(call, "name"), "arguments": spelled}}


READER = Reader(CLIENT, refuses, sessions)
