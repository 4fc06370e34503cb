"""What agents in benchmarks leave, and data sets of agents: trajectories of mini-swe-agent
(`*.traj.json`) and SWE-agent (`*.traj`), results of tau-bench (a list of runs) and tau2-bench (one
file of simulations), ShareGPT, the Agent Data Protocol and ATIF.

mini-swe-agent's models write their commands in the text; `with_calls` makes tool calls of them. In
tau2-bench the simulated user may have tools of its own, which the agent never saw, and the agent's
policy is kept apart; it becomes the system message. A record of a data set is one conversation: a
file of its own, a line of JSONL or a row of a table.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from refold.session_files.plain import IDS, record_id
from refold.session_files.reader import (
    Entry,
    Reader,
    Session,
    SessionBuilder,
    StoredSession,
    file_reader,
    single,
    write_call,
)
from refold.session_files.source import Source
from refold.text.json_values import (
    Record,
    int_at,
    list_at,
    object_at,
    objects_at,
    objects_in,
    parse_or_none,
    text_at,
    without_keys,
)

# --- mini-swe-agent and SWE-agent -----------------------------------------------------------------


MINI_SWE = "mini_swe"
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


def trajectory_mismatch(source: Source) -> str:
    """Return why this is no trajectory; empty if it is one."""
    document = source.document
    is_named = text_at(document, "trajectory_format").startswith("mini-swe-agent")
    if is_named and "messages" in document:
        return ""
    if any("role" in message for message in objects_at(document, "history")):
        return ""
    return "no trajectory_format mini-swe-agent, and no history of messages"


def read_trajectory(source: Source) -> Session:
    """Read a trajectory, whose format only mini-swe-agent names."""
    document, client, field = source.document, MINI_SWE, "messages"
    name = text_at(document, "instance_id")
    if "history" in document and "trajectory_format" not in document:
        client, field, name = "swe_agent", "history", source.path.name.removesuffix(".traj")
    session = SessionBuilder(source, client, "openai_chat", name)
    session.model = text_at(document, "info", "config", "model", "model_name")
    session.cwd = text_at(document, "info", "config", "environment", "cwd")
    for at, message in enumerate(objects_at(document, field), 1):
        role, response = text_at(message, "role"), object_at(message, "extra", "response")
        if role in ROLES:
            session.add(_strip_bookkeeping(message))
            if (created := int_at(response, "created")) > 0:
                session.note_time(created)
            if int_at(response, "usage", "prompt_tokens") >= 0:
                session.add_usage(object_at(response, "usage"))
        elif role != "exit" and client == MINI_SWE:
            # version 2 ends with an exit, and may hold Responses objects
            session.note(f"message {at} has no role that is sent")
    return session.build()


def _strip_bookkeeping(message: Record) -> Entry:
    """Return what is sent of a message. SWE-agent keeps a result's call id in a list of one."""
    wire = {
        key: message[key]
        for key in SENT_FIELDS
        if key in message and not (key == "tool_calls" and not message[key])
    }
    ids = [id for id in list_at(message, "tool_call_ids") if isinstance(id, str)]
    if wire.get("role") == "tool" and ids and "tool_call_id" not in wire:
        wire["tool_call_id"] = ids[0]
    return wire


MINI_SWE_READER = Reader(MINI_SWE, trajectory_mismatch, single(read_trajectory))


# --- actions in the text --------------------------------------------------------------------------


_OPENING = re.compile(r"```(?:bash|sh|mswea_bash_command)[ \t]*+\n")
_CLOSING = "\n```"


def with_calls(session: Session) -> Session:
    """Return *session* with text actions as tool calls, for strategies for tool results.

    An assistant's message with exactly one block of shell commands makes a call of the tool `bash`,
    and the user's message after it is the result. Positions stay. `read` gives the messages as they
    were sent; this form was never sent. Sessions in another format than `openai_chat` come back as
    they are, and so do messages with tool calls.
    """
    if session.format != "openai_chat":
        return session
    return replace(session, messages=list(_convert_actions(session.messages)))


def _convert_actions(messages: Sequence[Entry]) -> Iterator[Entry]:
    call_id = ""
    for at, message in enumerate(messages):
        follower = messages[at + 1] if at + 1 < len(messages) else {"role": "user"}
        action = _find_action(message) if text_at(follower, "role") == "user" else None
        if call_id:
            yield {"role": "tool", "tool_call_id": call_id, "content": message.get("content")}
        elif action:
            text, command = action
            call = write_call(f"call_{at}", "bash", {"command": command})
            yield {**message, "content": text, "tool_calls": [call]}
        else:
            yield message
        call_id = f"call_{at}" if action else ""


def _find_action(message: Entry) -> tuple[str, str] | None:
    """Return an assistant's text without the one block of shell commands in it, and these; None if
    there is none, or more than one. The next message of the user is their output."""
    if text_at(message, "role") != "assistant" or message.get("tool_calls"):
        return None
    before, command, after = _split_block(text_at(message, "content"))
    if command is None or _split_block(after)[1] is not None:
        return None
    return (before + after).rstrip(), command


def _split_block(text: str) -> tuple[str, str | None, str]:
    """Return what stands before the first block, its commands, and what stands behind it."""
    if opening := _OPENING.search(text):
        command, closing, rest = text[opening.end() :].partition(_CLOSING)
        if closing:
            return text[: opening.start()], command, rest
    return text, None, ""


# --- tau-bench and tau2-bench ---------------------------------------------------------------------


TAU = "tau"


def tau_mismatch(source: Source) -> str:
    """Return why this is no result file, and no run of one; empty if it is one."""
    if any(_tau_runs(source.document)):
        return ""
    if any("messages" in run for run in objects_at(source.document, "simulations")):
        return ""
    return "no list of runs with a traj, and no simulations with messages"


def tau_sessions(source: Source) -> Sequence[StoredSession]:
    """Return a session for each run, in the order of the file; named by task and trial."""
    runs, read = list(_tau_runs(source.document)), _read_tau
    if not runs:
        runs, read = list(objects_at(source.document, "simulations")), _read_tau2
    return [StoredSession(_run_id(run), partial(read, source, run)) for run in runs]


def _tau_runs(document: Any) -> Iterator[Record]:
    """Yield the runs of a list, or a run that stands alone."""
    runs = [document] if isinstance(document, dict) else document
    return (run for run in objects_in(runs) if isinstance(run.get("traj"), list))


def _run_id(run: Record) -> str:
    return f"{run.get('task_id')}.{run.get('trial')}"


def _read_tau(source: Source, run: Record) -> Session:
    session = SessionBuilder(source, "tau", "openai_chat", _run_id(run))
    session.messages += objects_at(run, "traj")
    session.title = text_at(run, "info", "task", "instruction")
    return session.build()


def _read_tau2(source: Source, run: Record) -> Session:
    session = SessionBuilder(source, "tau2", "openai_chat", _run_id(run))
    info = object_at(source.document, "info")
    session.model = text_at(info, "agent_info", "llm")
    session.note_time(run.get("start_time"))
    session.note_time(run.get("end_time"))
    if policy := text_at(info, "environment_info", "policy"):
        session.add({"role": "system", "content": policy})
    for message in objects_at(run, "messages"):
        parts = objects_at(message, "tool_messages") if "tool_messages" in message else [message]
        for part in parts:
            session.messages += _entries(part)
        if message.get("role") == "assistant" and int_at(message, "usage", "prompt_tokens") >= 0:
            session.add_usage(object_at(message, "usage"))
    return session.build()


def _entries(message: Record) -> list[Entry]:
    """Return a message as the agent's provider takes it; none for the user's own tools."""
    content, role = message.get("content"), text_at(message, "role")
    if role == "tool" and message.get("requestor") != "user":
        return [{"role": "tool", "tool_call_id": text_at(message, "id"), "content": content or ""}]
    if role == "assistant":
        calls = [
            write_call(text_at(call, "id"), text_at(call, "name"), call.get("arguments") or {})
            for call in objects_at(message, "tool_calls")
        ]
        return [{"role": role, "content": content, **({"tool_calls": calls} if calls else {})}]
    return [{"role": role, "content": content}] if role in {"user", "system"} and content else []


TAU_READER = Reader(TAU, tau_mismatch, tau_sessions)


# --- ShareGPT -------------------------------------------------------------------------------------
# It names no calls; they get ids by position.

SHAREGPT = "sharegpt"
TURNS = ("conversations", "conversation", "trajectory")
"""Fields that hold the turns."""
_SPEAKERS = {
    "system": ("system",),
    "user": ("human", "user"),
    "assistant": ("gpt", "assistant", "ai", "model", "bot", "chatgpt", "bing", "bard"),
    "call": ("function_call", "tool_call"),
    "result": ("observation", "tool", "function", "function_response"),
}
_SPEAKER_ROLES = {name: role for role, names in _SPEAKERS.items() for name in names}


def _turns(document: Any) -> tuple[str, Sequence[Record]]:
    """Return the field of the turns and the turns; none if they are of another kind."""
    for field in TURNS:
        turns = list(objects_at(document, field))
        if turns and all(
            _speaker(turn) in _SPEAKER_ROLES and ("content" in turn or _words(turn) is not None)
            for turn in turns
        ):
            return field, turns
    return "", []


def _speaker(turn: Record) -> str:
    return (text_at(turn, "from") or text_at(turn, "role")).lower()


def _words(turn: Record) -> str | None:
    texts = (turn.get(key) for key in ("value", "text", "content", "system_prompt"))
    return next((text for text in texts if isinstance(text, str)), None)


def sharegpt_mismatch(source: Source) -> str:
    """Return why this is no ShareGPT conversation; empty if it is one."""
    return "" if _turns(source.document)[1] else f"no turns of known speakers in {', '.join(TURNS)}"


def read_sharegpt(session: SessionBuilder) -> None:
    """Read a conversation: calls and results stand in turns of their own."""
    document = session.source.document
    session.id = record_id(document)
    field, turns = _turns(document)
    tools = parse_or_none(text_at(document, "tools")) or document.get("tools")
    session.body = without_keys(document, field, "system", "tools", *IDS)
    if isinstance(tools, list):
        session.body["tools"] = tools
    if text := text_at(document, "system"):
        session.say("system", text)
    for turn in turns:
        if "role" in turn and "content" in turn:  # a chat message under another name
            session.add(turn)
            continue
        role, text = _SPEAKER_ROLES[_speaker(turn)], _words(turn) or ""
        calls = parse_or_none(text) if role == "call" else None
        calls = [calls] if isinstance(calls, dict) else calls
        if role == "call" and calls and all(text_at(call, "name") for call in objects_in(calls)):
            session.call(
                None, [("", call["name"], call.get("arguments")) for call in objects_in(calls)]
            )
        elif role == "result":
            session.answer(text)
        else:
            session.say("assistant" if role == "call" else role, text)


SHAREGPT_READER = file_reader(SHAREGPT, "openai_chat", sharegpt_mismatch, read_sharegpt)


# --- Agent Data Protocol --------------------------------------------------------------------------


ADP = "adp"


def adp_mismatch(source: Source) -> str:
    """Return why this is no trajectory of the Agent Data Protocol; empty if it is one."""
    steps = list(objects_at(source.document, "content"))
    is_match = steps and all(text_at(step, "class_") for step in steps)
    return "" if is_match else "no content of actions and observations"


def read_adp(session: SessionBuilder) -> None:
    """Read a trajectory. Actions that follow one another are one answer of the model."""
    document = session.source.document
    session.id = record_id(document)
    before = ""
    for step in objects_at(document, "content"):
        kind, content = text_at(step, "class_"), step.get("content")
        thought, reasoning = text_at(step, "description"), text_at(step, "reasoning_content")
        id = text_at(step, "tool_call_id")
        if kind in {"api_action", "code_action"}:
            name, arguments = text_at(step, "function"), object_at(step, "kwargs")
            if kind == "code_action":
                name, arguments = text_at(step, "language") or "code", {"code": content}
            if before in {"api_action", "code_action"} and not thought:
                session.add_call(id, name, arguments)
            else:
                session.call(thought, [(id, name, arguments)], reasoning)
        elif kind == "message_action":
            text = "\n\n".join(filter(None, (thought, text_at(step, "content"))))
            session.say("assistant", text, reasoning_content=reasoning)
        elif kind == "text_observation" and step.get("source") != "environment" and not id:
            session.say("user", content)
        else:
            texts = (text_at(step, key) for key in ("axtree", "html", "url"))
            page = next(filter(None, texts), f"[{kind}]")
            session.answer(content if isinstance(content, str) else page, id)
        before = kind
    session.body = without_keys(document, "content", "id")


ADP_READER = file_reader(ADP, "openai_chat", adp_mismatch, read_adp)


# --- Agent Trajectory Interchange Format ----------------------------------------------------------
# Up to version 1.8.

ATIF = "atif"


def atif_mismatch(source: Source) -> str:
    """Return why this is no trajectory of the Agent Trajectory Interchange Format; empty if it is
    one."""
    is_match = text_at(source.document, "schema_version").startswith("ATIF")
    return "" if is_match else "no schema_version ATIF"


def list_atif(source: Source) -> list[StoredSession]:
    """Return the trajectories of subagents that a trajectory holds, and then its own."""
    subagents = objects_at(source.document, "subagent_trajectories")
    inner = [each for agent in subagents for each in list_atif(replace(source, document=agent))]
    id = text_at(source.document, "trajectory_id") or text_at(source.document, "session_id")
    return [*inner, StoredSession(id, partial(_read_atif, source, id))]


def _read_atif(source: Source, id: str) -> Session:
    """Read a trajectory. What a step copies of an earlier one keeps its mark: it was context."""
    document, session = source.document, SessionBuilder(source, ATIF, "openai_chat", id)
    for step in objects_at(document, "steps"):
        text, speaker = _atif_text(step.get("message")), text_at(step, "source")
        if speaker == "agent":
            calls = [
                (
                    text_at(call, "tool_call_id"),
                    text_at(call, "function_name"),
                    call.get("arguments"),
                )
                for call in objects_at(step, "tool_calls")
            ]
            session.call(text, calls, text_at(step, "reasoning_content"))
            if step.get("is_copied_context"):
                session.messages[-1]["is_copied_context"] = True
        elif text:
            session.say("system" if speaker == "system" else "user", text)
        for result in objects_at(step, "observation", "results"):
            session.answer(_atif_text(result.get("content")), text_at(result, "source_call_id"))
    agent = object_at(document, "agent")
    body = {"model": text_at(agent, "model_name"), "tools": list_at(agent, "tool_definitions")}
    session.body = {key: value for key, value in body.items() if value}
    return session.build()


def _atif_text(content: Any) -> str:
    """Return the text of a message; of other media where they are."""
    if isinstance(content, str):
        return content
    parts = objects_in(content)
    return "\n".join(
        text_at(part, "text") or f"[{text_at(part, 'source', 'path')}]" for part in parts
    )


ATIF_READER = Reader(ATIF, atif_mismatch, list_atif)
